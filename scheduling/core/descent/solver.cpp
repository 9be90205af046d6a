#include "solver.hpp"

namespace stowplan::scheduling {

std::int64_t descend(const Graph& graph, const Rates& rates, const Task& task, const Control& control,
                     std::int64_t* order, std::int64_t* way) {
  const Stopwatch watch(control);
  Simulator simulator(graph, rates);
  simulator.set_order(order);
  for (Index s = 0; s < simulator.values(); ++s) {
    if (task.ways[s] != 0) simulator.set_way(s, static_cast<Way>(way[s]));
  }
  Trial trial(simulator, task.ways, task.budget);
  const Writers writers(graph);
  Descent descent(trial, writers, task.groups, task.seconds, watch);
  if (task.coarse) {
    descent.fall_by_groups();
  } else if (descent.fall()) {
    descent.rise();
    watch.report(trial.worth().peak, trial.worth().seconds);
  }
  if (control.effort > 0 && trial.worth().seconds > 0) {
    Rebuild rebuild(trial, descent, task.places, control.seed, watch);
    rebuild.run(control.effort);
    if (trial.worth().excess == 0) descent.rise();
  }
  for (Index p = 0; p < simulator.operators(); ++p) order[p] = simulator.order(p);
  for (Index s = 0; s < simulator.values(); ++s) {
    if (task.ways[s] != 0) way[s] = static_cast<std::int64_t>(trial.way(s));
  }
  return trial.evaluations();
}

}  // namespace stowplan::scheduling
