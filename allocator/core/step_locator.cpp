#include "step_locator.hpp"

#include <algorithm>
#include <utility>

namespace stowplan::allocator {

namespace {

// Points of a request that may be the plan's.
constexpr int kClose = 2;       // the youngest of the blocks freed before it are as old
constexpr int kApart = -3;      // or not
constexpr int kEqual = 1;       // all of them are
constexpr int kConstant = 2;    // its size is the only one that was seen
constexpr int kVaries = 1;      // its size is about as before, where several were seen
constexpr int kOtherSize = -2;  // or where only one was
constexpr int kFarOff = -6;     // neither
constexpr int kMost = kClose + kEqual + kConstant;
constexpr Bytes kAbout = 3;    // times
constexpr int kMarked = 16;    // it stands at the landmark
constexpr int kUnmarked = -4;  // or not
// Of what else may be.
constexpr int kExtra = -4;
constexpr int kSkip = -3;
constexpr int kBack = -12;
constexpr int kFurther = -3;  // for each time that the distance is doubled

int doublings(RequestNumber distance) {
  int n = 0;
  for (; distance > 0; distance >>= 1) ++n;
  return n;
}

int way(RequestNumber from, RequestNumber to) {
  return to > from ? kFurther * doublings(to - from) : kBack + kFurther * doublings(from - to);
}

}  // namespace

void StepLocator::freed(const Plan& plan, RequestNumber slot, std::uint32_t age) {
  if (age >= 1 && age <= Plan::kYoung) sign_ |= std::uint64_t{1} << (age - 1);
  if (slot != kNoRequest && plan.landmark[slot] != kNoRequest) landmark_ = plan.landmark[slot];
}

RequestNumber StepLocator::locate(const Plan& plan, Bytes size) {
  const Asked asked{size, std::exchange(sign_, 0), guesses_[0].points};
  asked_[requests_++ % Plan::kSigns] = asked;
  std::swap(guesses_, former_);
  former_count_ = std::exchange(count_, 0);
  for (std::size_t i = 0; i < former_count_; ++i) follow(plan, former_[i], asked);
  const RequestNumber next = former_[0].next;
  if (landmark_ != kNoRequest && landmark(next) != kMarked) jump_to_landmark(plan, next, asked);
  if (requests_ >= Plan::kSigns && match(plan, next, asked) < kClose + kEqual + kVaries) jump(plan, next);
  landmark_ = kNoRequest;
  while (guesses_[count_ - 1].points < guesses_[0].points - kHopeless) --count_;
  return guesses_[0].at;
}

int StepLocator::match(const Plan& plan, std::size_t k, const Asked& asked) {
  if (k >= plan.size()) return 10 * kFarOff;
  const Bytes least = plan.least[k];
  const Bytes most = plan.requested[k];
  int points = ((plan.sign[k] ^ asked.sign) & Plan::kYoungest) != 0 ? kApart : kClose;
  if (plan.sign[k] == asked.sign) points += kEqual;
  if (least > kAbout * asked.size || asked.size > kAbout * most) return points + kFarOff;
  if (least < most) return points + kVaries;
  return points + (asked.size == most ? kConstant : kOtherSize);
}

int StepLocator::landmark(RequestNumber k) const {
  if (landmark_ == kNoRequest) return 0;
  return k >= landmark_ && k - landmark_ < kAfter ? kMarked : kUnmarked;
}

void StepLocator::follow(const Plan& plan, const Guess& guess, const Asked& asked) {
  const RequestNumber next = guess.next;
  const int points = match(plan, next, asked);
  consider({next + 1, next, guess.points + points + landmark(next)});
  if (points >= kClose + kEqual + kVaries) return;
  consider({next, kNoRequest, guess.points + kExtra});
  const int before = guess.points + kSkip;
  if (points >= kClose || is_beaten(before + kMost + (landmark_ == kNoRequest ? 0 : kMarked))) return;
  for (RequestNumber k = next + 1; k <= next + kSkips; ++k) {
    const int there = match(plan, k, asked);
    if (there >= kApart) consider({k + 1, k, before + there + landmark(k)});
  }
}

void StepLocator::jump_to_landmark(const Plan& plan, RequestNumber from, const Asked& asked) {
  for (RequestNumber k = landmark_; k < landmark_ + kAfter; ++k) {
    const int points = match(plan, k, asked);
    if (points >= kClose) consider({k + 1, k, asked.before + points + kMarked + way(from, k)});
  }
}

// To the places nearest to the cursor where the last requests stand, as if they had been followed from there on.
void StepLocator::jump(const Plan& plan, RequestNumber from) {
  std::uint64_t signs = 0;
  for (std::uint32_t i = 0; i < Plan::kSigns; ++i) {
    signs = Plan::append(signs, asked_[(requests_ + i) % Plan::kSigns].sign & Plan::kYoungest);
  }
  const auto here = std::lower_bound(plan.index.begin(), plan.index.end(), std::pair{signs, from});
  int found = 0;
  auto after = here;
  for (int i = 0; i < kCandidates && found < kFound && after != plan.index.end() && after->first == signs; ++i) {
    found += stands_at(plan, from, (after++)->second);
  }
  found = 0;
  auto before = here;
  for (int i = 0; i < kCandidates && found < kFound && before != plan.index.begin(); ++i) {
    if ((--before)->first != signs) break;
    found += stands_at(plan, from, before->second);
  }
}

bool StepLocator::stands_at(const Plan& plan, RequestNumber from, RequestNumber k) {
  const std::uint32_t first = requests_ - Plan::kSigns;
  int points = asked_[first % Plan::kSigns].before + way(from, k);
  for (std::uint32_t i = 0; i < Plan::kSigns; ++i) {
    const int there = match(plan, k + 1 - Plan::kSigns + i, asked_[(first + i) % Plan::kSigns]);
    if (there <= kFarOff) return false;
    points += there;
  }
  consider({k + 1, k, points});
  return true;
}

// Whether there are better guesses than one with so many points.
bool StepLocator::is_beaten(int points) const {
  if (count_ == 0) return false;
  return points < guesses_[0].points - kHopeless || (count_ == kGuesses && points <= guesses_[kGuesses - 1].points);
}

// Keeps a guess, the best first, unless there are better ones, or one of the same place that is as good.
void StepLocator::consider(Guess guess) {
  if (is_beaten(guess.points)) return;
  const auto begin = guesses_.begin();
  const auto same = std::find_if(begin, begin + count_, [&](const Guess& other) { return other.next == guess.next; });
  if (same != begin + count_) {
    if (same->points >= guess.points) return;
    std::move(same + 1, begin + count_--, same);
  }
  const auto at = std::find_if(begin, begin + count_, [&](const Guess& other) { return other.points < guess.points; });
  if (at == guesses_.end()) return;
  if (count_ < kGuesses) ++count_;
  std::move_backward(at, begin + count_ - 1, begin + count_);
  *at = guess;
}

}  // namespace stowplan::allocator
