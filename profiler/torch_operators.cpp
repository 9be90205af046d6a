// Tells of PyTorch's operators, as its own profiler is told of them; profiler/torch_library.py compiles and loads it.
//
// Told are those operators that no other one of their thread runs, with the node of autograd that runs them, if one
// does: `aten::addmm`; `aten::mm` of `AddmmBackward0`. The engine's own bookkeeping is none. The library is never
// unloaded, for an operator that runs while nobody listens any more still tells of its end.
#include <ATen/record_function.h>

#include <memory>
#include <optional>
#include <string_view>

#define STOWPLAN_API extern "C" __attribute__((visibility("default")))

namespace {

// Called by any thread, with or without the GIL. The names are valid during the call.
struct Listener {
  void (*begins)(const char* node, const char* name);  // node: null, or autograd's
  void (*ends)();
};

constexpr std::string_view kEngine = "autograd::engine::";

Listener listener{};
std::optional<at::CallbackHandle> handle;

struct Former final : at::ObserverContext {
  explicit Former(const char* node) : node(node) {}
  const char* node;
};

thread_local const char* running_node = nullptr;
thread_local int running_operators = 0;

bool is_engine(const at::RecordFunction& record) {
  return std::string_view(record.name()).substr(0, kEngine.size()) == kEngine;
}

std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction& record) {
  if (record.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    auto former = std::make_unique<Former>(running_node);
    running_node = record.name();
    return former;
  }
  if (!is_engine(record) && running_operators++ == 0) listener.begins(running_node, record.name());
  return nullptr;
}

void ends(const at::RecordFunction& record, at::ObserverContext* context) {
  if (record.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    running_node = static_cast<Former*>(context)->node;
  } else if (!is_engine(record) && --running_operators == 0) {
    listener.ends();
  }
}

}  // namespace

// Precondition, of both: no other thread calls one of them.
STOWPLAN_API void stow_torch_listen(const Listener* given) {
  if (handle) return;
  listener = *given;
  handle = at::addGlobalCallback(at::RecordFunctionCallback(&begins, &ends)
                                     .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

STOWPLAN_API void stow_torch_ignore() {
  if (handle) at::removeCallback(*handle);
  handle.reset();
}
