// Graphs: nodes that run again at each launch, in any order that the edges allow, with the addresses of the capture.
//
// A node is the piece of work that the capture recorded, so each launch holds its arguments against what is alive then.
// A graph has no memory nodes: hipMallocAsync is refused in a capture.
#include <random>

#include "capture.hpp"
#include "enqueue.hpp"
#include "faults.hpp"

namespace simhip {

namespace {

using GraphRef = std::shared_ptr<Graph>;

void run_graph(const Graph& graph, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::size_t n = graph.nodes.size();
  std::vector<std::size_t> missing(n);
  std::vector<std::size_t> ready;
  std::vector<std::vector<std::size_t>> next(n);
  for (std::size_t i = 0; i < n; ++i) {
    missing[i] = graph.nodes[i].after.size();
    for (const std::size_t before : graph.nodes[i].after) next[before].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const std::size_t i = ready.back();
    ready.pop_back();
    running->part = graph.nodes[i].what;
    if (graph.nodes[i].run) graph.nodes[i].run();
    for (const std::size_t j : next[i]) {
      if (--missing[j] == 0) ready.push_back(j);
    }
  }
  running->part = nullptr;
}

}  // namespace

}  // namespace simhip

using simhip::GraphRef;
using simhip::note;

extern "C" {

// With one reference, which a graph takes: then copies of the graph have it, too, and launches while they run.
hipError_t hipUserObjectCreate(hipUserObject_t* out, void* argument, hipHostFn_t destroy, unsigned count,
                               unsigned flags) {
  if (count != 1 || flags != hipUserObjectNoDestructorSync) return note(hipErrorInvalidValue);
  *out = reinterpret_cast<hipUserObject_t>(new simhip::UserObject{destroy, argument});
  return hipSuccess;
}

hipError_t hipGraphRetainUserObject(hipGraph_t graph, hipUserObject_t object, unsigned count, unsigned flags) {
  if (count != 1 || flags != hipGraphUserObjectMove) return note(hipErrorInvalidValue);
  const simhip::Lock lock(simhip::machine().mutex);
  (*reinterpret_cast<GraphRef*>(graph))->objects.emplace_back(reinterpret_cast<simhip::UserObject*>(object));
  return hipSuccess;
}

hipError_t hipGraphInstantiate(hipGraphExec_t* out, hipGraph_t graph, hipGraphNode_t*, char*, std::size_t) {
  *out = reinterpret_cast<hipGraphExec_t>(new GraphRef(*reinterpret_cast<GraphRef*>(graph)));
  return hipSuccess;
}

hipError_t hipGraphDestroy(hipGraph_t graph) {
  delete reinterpret_cast<GraphRef*>(graph);
  return hipSuccess;
}

hipError_t hipGraphExecDestroy(hipGraphExec_t graph) {
  delete reinterpret_cast<GraphRef*>(graph);
  return hipSuccess;
}

hipError_t hipGraphLaunch(hipGraphExec_t handle, hipStream_t stream) {
  const GraphRef graph = *reinterpret_cast<GraphRef*>(handle);
  std::uint64_t seed = 0;
  {
    const simhip::Lock lock(simhip::machine().mutex);
    seed = simhip::machine().random();
  }
  return simhip_enqueue(stream, "graph", [graph, seed] { simhip::run_graph(*graph, seed); });
}

}  // extern "C"
