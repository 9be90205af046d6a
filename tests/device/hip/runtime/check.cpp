#include "check.hpp"

#include <cstdint>
#include <cstring>
#include <string>

#include "faults.hpp"
#include "memory.hpp"

namespace simhip {

bool check_range(const void* base, std::size_t size, int device) {
  const auto at = reinterpret_cast<std::uintptr_t>(base);
  if (size == 0 || !memory().is_ours(at)) return true;
  const std::string why = memory().refusal(at, size, device);
  if (why.empty()) return true;
  fault("uses " + std::to_string(size) + " bytes from " + hex(at) + ", " + why);
  return false;
}

bool check_argument(const void* argument, std::size_t size, std::size_t index, int device) {
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= size; at += sizeof(std::uintptr_t)) {
    std::uintptr_t word = 0;
    std::memcpy(&word, static_cast<const char*>(argument) + at, sizeof word);
    if (!memory().is_ours(word)) {
      if (at == 0) return true;  // a number, or a structure that is passed over
      continue;
    }
    const std::string why = memory().refusal(word, 0, device);
    if (why.empty()) continue;
    fault("has in argument " + std::to_string(index) + " the address " + hex(word) + ", " + why);
    return false;
  }
  return true;
}

}  // namespace simhip
