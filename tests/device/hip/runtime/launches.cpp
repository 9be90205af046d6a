// Launches: a kernel with its arguments, copied at the call and held against what is alive when it runs.
//
// A kernel without barriers runs its threads one after the other in a loop; one whose threads share the work by a
// grid-stride loop runs as a single thread; one with barriers runs on fibers.
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "check.hpp"
#include "faults.hpp"
#include "fibers.hpp"
#include "gil.hpp"
#include "modules.hpp"
#include "streams.hpp"

namespace simhip {

namespace {

constexpr std::uint64_t kMostThreads = 1024;
constexpr std::size_t kMostShared = 65536;

struct Launch {
  std::shared_ptr<Library> library;
  const SimKernel* kernel;
  simhip_dim3 grid;
  simhip_dim3 block;
  std::size_t shared;
  int device;
  std::vector<char> bytes;  // of the arguments, each at a multiple of 16
};

std::size_t up(std::size_t size) { return (size + 15) / 16 * 16; }

std::vector<char> copy_arguments(const SimKernel& kernel, void** params) {
  std::size_t size = 0;
  for (std::uint32_t i = 0; i < kernel.nargs; ++i) size += up(kernel.sizes[i]);
  std::vector<char> bytes(size);
  for (std::uint32_t i = 0, at = 0; i < kernel.nargs; at += up(kernel.sizes[i]), ++i) {
    std::memcpy(bytes.data() + at, params[i], kernel.sizes[i]);
  }
  return bytes;
}

std::vector<void*> pointers_to(Launch& launch) {
  std::vector<void*> args(launch.kernel->nargs + 1);
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < launch.kernel->nargs; ++i) {
    args[i] = launch.bytes.data() + at;
    at += up(launch.kernel->sizes[i]);
  }
  return args;
}

void run_blocks(const Launch& launch, SimCtx& all, simhip_dim3 grid, std::uint32_t threads, void** args) {
  const bool on_fibers = (launch.kernel->flags & SIMHIP_BARRIERS) != 0 && threads > 1;
  std::unique_ptr<BorrowedBlock> fibers;
  if (on_fibers) fibers = std::make_unique<BorrowedBlock>();
  for (std::uint32_t z = 0; z < grid.z; ++z) {
    for (std::uint32_t y = 0; y < grid.y; ++y) {
      for (std::uint32_t x = 0; x < grid.x; ++x) {
        all.block_idx = {x, y, z};
        simhip_ctx = &all;
        if (on_fibers) {
          (*fibers)->run(*launch.kernel, args, all, threads);
        } else {
          launch.kernel->run_threads(args, &all, 0, threads);
        }
      }
    }
  }
}

void run(Launch& launch) {
  std::vector<void*> args = pointers_to(launch);
  for (std::uint32_t i = 0; i < launch.kernel->nargs; ++i) {
    if (!check_argument(args[i], launch.kernel->sizes[i], i, launch.device)) return;
  }
  SimCtx all = {};
  SimCtx* outer = simhip_ctx;
  std::vector<std::max_align_t> shared(launch.shared / sizeof(std::max_align_t) + 1);
  all.shared = shared.data();
  if ((launch.kernel->flags & SIMHIP_GRID_STRIDE) != 0) {
    all.grid_dim = all.block_dim = {1, 1, 1};
    run_blocks(launch, all, {1, 1, 1}, 1, args.data());
  } else {
    all.grid_dim = launch.grid;
    all.block_dim = launch.block;
    run_blocks(launch, all, launch.grid, launch.block.x * launch.block.y * launch.block.z, args.data());
  }
  simhip_ctx = outer;
}

}  // namespace

}  // namespace simhip

using simhip::note;

extern "C" {

hipError_t hipModuleLaunchKernel(hipFunction_t handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, hipStream_t stream_handle, void** params, void** extra) {
  simhip::refuse_gil(__func__);
  const auto* function = reinterpret_cast<const simhip::Function*>(handle);
  if (function == nullptr) return note(hipErrorInvalidHandle);
  const std::uint64_t threads = std::uint64_t{bx} * by * bz;
  if (gx == 0 || gy == 0 || gz == 0 || threads == 0 || threads > simhip::kMostThreads) {
    return note(hipErrorInvalidConfiguration);
  }
  if (shared > simhip::kMostShared) return note(hipErrorInvalidValue);
  if (params == nullptr && extra != nullptr) return note(hipErrorNotSupported);
  auto launch = std::make_shared<simhip::Launch>();
  *launch = {function->library, function->kernel, {gx, gy, gz}, {bx, by, bz}, shared, 0, {}};
  launch->bytes = simhip::copy_arguments(*function->kernel, params);
  simhip::Lock lock(simhip::machine().mutex);
  simhip::StreamRef stream;
  if (const hipError_t error = simhip::find(stream_handle, &stream); error != hipSuccess) return error;
  launch->device = stream->device;
  return simhip::enqueue(lock, stream, function->name, [launch] { simhip::run(*launch); });
}

// The schedule goes on as with another SIMHIP_SEED.
void simhip_reseed(std::uint64_t seed) {
  const simhip::Lock lock(simhip::machine().mutex);
  simhip::machine().random.seed(seed);
}

// How many pieces of work wait.
std::uint64_t simhip_pending() {
  const simhip::Lock lock(simhip::machine().mutex);
  return simhip::machine().pending;
}

}  // extern "C"
