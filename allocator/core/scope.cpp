#include "scope.hpp"

#include <algorithm>
#include <utility>

namespace stowplan::allocator {

void ThreadOrder::find(ThreadId thread) {
  const auto at = std::find_if(threads_.begin(), threads_.end(), [=](const Thread& one) { return one.id == thread; });
  latest_ = static_cast<std::size_t>(at - threads_.begin());
  if (latest_ == threads_.size() && latest_ < kMostThreads) threads_.push_back({thread, 0});
}

bool ThreadOrder::end_step() {
  Step step{0, std::exchange(order_, 0)};
  for (const Thread& one : threads_) step.requests += (one.digest ^ one.id) * kOdd;
  const bool several = threads_.size() > 1;
  threads_.clear();
  latest_ = 0;
  if (!several) return false;
  const auto at = std::find_if(steps_.begin(), steps_.end(),
                               [&](const Step& earlier) { return earlier.requests == step.requests; });
  if (at != steps_.end()) return at->order != step.order;
  if (steps_.size() < kRemembered) {
    steps_.push_back(step);
  } else {
    steps_[oldest_++ % kRemembered] = step;
  }
  return false;
}

}  // namespace stowplan::allocator
