// What follows from the columns of a plan; see plan.hpp.
#include "plan.hpp"

namespace stowplan::allocator {

void Plan::derive() {
  wraps.assign(size(), false);
  for (RequestNumber k = 0; k <= size(); ++k) {
    for (std::uint32_t i = due_begin[k]; i < due_begin[k + 1]; ++i) wraps[due[i]] = k <= due[i];
  }
  prefix.assign(1, 0xCBF29CE484222325u);
  whole.clear();
  for (const Bytes size : requested) {
    const std::uint64_t mixed = (prefix.back() ^ static_cast<std::uint64_t>(size)) * 0x9E3779B97F4A7C15u;
    prefix.push_back(mixed ^ (mixed >> 29));
    if (step_length == 0 || (prefix.size() - 1) % step_length != 0) continue;
    whole.push_back(prefix.back());
    prefix.back() = prefix.front();
  }
}

bool Plan::needs(Bytes low, Bytes high, RequestNumber from, RequestNumber until) const {
  while (from < until && !is_within(from, low, high)) ++from;
  return from < until;
}

}  // namespace stowplan::allocator
