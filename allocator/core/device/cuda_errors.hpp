// What a pool throws where CUDA fails: through PyTorch, whose callers of an allocator do not ask whether it was null.
#pragma once

#include <stdexcept>
#include <string>

namespace stowplan::allocator {

// PyTorch makes a RuntimeError of it.
struct CudaFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws PyTorch's own exception, of which it makes torch.OutOfMemoryError, where its library is loaded and has it;
// else a CudaFailure.
[[noreturn]] void throw_out_of_memory(const std::string& text);

}  // namespace stowplan::allocator
