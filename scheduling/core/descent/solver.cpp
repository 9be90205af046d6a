#include "solver.hpp"

namespace stowplan::scheduling {

std::int64_t descend(const Graph& graph, const Rates& rates, Task& task, const Control& control, std::int64_t* order,
                     std::int64_t* way) {
  const Stopwatch watch(control);
  Simulator simulator(graph, rates);
  simulator.set_order(order);
  for (Index s = 0; s < simulator.values(); ++s) {
    if (task.ways[s] != 0) simulator.set_way(s, static_cast<Way>(way[s]));
    for (const Index op : task.drops[s]) simulator.set_goes_after(s, op);
  }
  Trial trial(simulator, task.ways, task.budget);
  Descent descent(trial, task.groups, task.seconds, watch);
  if (task.coarse) {
    descent.fall_by_groups();
  } else if (descent.fall()) {
    descent.rise();
    watch.report(trial.worth().peak, 0, trial.worth().seconds);
  }
  if (control.effort > 0 && (trial.worth().seconds > 0 || trial.worth().excess > 0)) {
    rebuild(trial, descent, task.places, control, watch);
    if (trial.worth().excess == 0) descent.rise();
  }
  for (Index p = 0; p < simulator.operators(); ++p) order[p] = simulator.order(p);
  for (Index s = 0; s < simulator.values(); ++s) {
    if (task.ways[s] != 0) way[s] = static_cast<std::int64_t>(trial.way(s));
    task.drops[s].clear();
    if (trial.way(s) != Way::dropped) continue;
    for (Index use = simulator.first_use(s); use < simulator.first_use(s + 1); ++use) {
      if (simulator.goes(use)) task.drops[s].push_back(simulator.user(use));
    }
  }
  return trial.evaluations();
}

}  // namespace stowplan::scheduling
