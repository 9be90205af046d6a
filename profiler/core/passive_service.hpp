// The service of a recorder: it watches, and sends every request upstream.
#pragma once

#include <vector>

#include "block_table.hpp"
#include "host_memory.hpp"
#include "step_recorder.hpp"

namespace stowplan::profiler {

class PassiveService {
 public:
  explicit PassiveService(const Upstream&) { recorder_.set_timestamps(true); }

  Grant request(Bytes size, Stream stream, ThreadId thread) {
    Block block{size, stream, {}};
    if (recorder_.in_step() && thread == owner_) block.birth = recorder_.allocate(size, stream);
    return {0, blocks_.insert(block), 0};
  }
  void adopt(BlockId, std::uintptr_t) {}
  void cancel(BlockId id) { release(id); }
  bool release(BlockId id) {
    const Block& block = blocks_[id];
    recorder_.free(block.birth, block.size);
    blocks_.erase(id);
    return true;
  }
  Bytes size_of(BlockId id) const { return blocks_[id].size; }

  // False where a step is running already.
  bool begin_step(ThreadId thread) {
    if (recorder_.in_step()) return false;
    owner_ = thread;
    recorder_.begin_step();
    return true;
  }
  StepRecorder& recorder() { return recorder_; }

 private:
  struct Block {
    Bytes size = 0;
    Stream stream = 0;
    Birth birth;
  };
  StepRecorder recorder_;
  BlockTable<Block> blocks_;
  ThreadId owner_ = 0;
};

// What end_step() says of the step.
struct RecordedStep {
  std::vector<Event> log;
  bool complete = false;  // the log holds all of the step
};

inline bool begin_recorded_step(HostMemory<PassiveService>& memory) {
  return memory.locked([](PassiveService& service) { return service.begin_step(current_thread()); });
}

inline RecordedStep end_recorded_step(HostMemory<PassiveService>& memory) {
  return memory.locked([](PassiveService& service) {
    const bool complete = !service.recorder().truncated();
    return RecordedStep{service.recorder().end_step(), complete};
  });
}

}  // namespace stowplan::profiler
