#include "tracker.hpp"

#include <algorithm>

namespace stowplan::allocator {

namespace {

constexpr int kOdd = 4;   // doubt that a request raises which is not the next one
constexpr int kStrange = 2;  // and one that is, with another sign
constexpr int kSure = 2;

bool same_size(std::uint8_t sign) { return (sign & 1) != 0; }

}  // namespace

void Tracker::begin() { *this = Tracker(); }

void Tracker::freed(const Plan& plan, RequestNumber slot, std::uint32_t age) {
  if (age <= Plan::kShort) ++frees_;
  if (slot != kNoRequest && plan.landmark[slot] != kNoRequest) landmark_ = plan.landmark[slot];
}

RequestNumber Tracker::locate(const Plan& plan, Bytes size) {
  const std::uint32_t number = count_++;
  const bool same = number > 0 && sizes_[(number - 1) % kSigns] == size;
  const std::uint8_t sign = Plan::sign_of(frees_, same);
  frees_ = 0;
  signs_ = Plan::append(signs_, sign);

  RequestNumber at = at_landmark(plan, size, sign);
  landmark_ = kNoRequest;
  if (at == next_) doubt_ = 0;
  if (at == kNoRequest && alike(plan, next_, size)) {
    at = next_;
    if (plan.sign[next_] != sign) {
      doubt_ += kStrange;
      sure_ = 0;
    } else if (in_range(plan, next_, size)) {
      doubt_ = std::max(0, doubt_ - 1);
      ++sure_;
    }
  } else if (at == kNoRequest) {
    doubt_ += kOdd;
    sure_ = 0;
    at = nearby(plan, size, sign);
  }
  sizes_[number % kSigns] = size;
  if (doubt_ >= kDoubt && sure_ < kSure && number >= kSigns && number - looked_ >= kPause) {
    looked_ = number;
    if (const RequestNumber found = anywhere(plan); found != kNoRequest) {
      doubt_ = 0;
      at = found;
    }
  }
  lost_ = at == kNoRequest;
  if (!lost_) next_ = at + 1;
  return at;
}

RequestNumber Tracker::at_landmark(const Plan& plan, Bytes size, std::uint8_t sign) const {
  if (landmark_ == kNoRequest) return kNoRequest;
  if (landmark_ == next_) return alike(plan, next_, size) ? next_ : kNoRequest;
  for (RequestNumber k = landmark_; k < landmark_ + kAfter; ++k) {
    if (in_range(plan, k, size) && same_size(plan.sign[k]) == same_size(sign)) return k;
  }
  return kNoRequest;
}

RequestNumber Tracker::nearby(const Plan& plan, Bytes size, std::uint8_t sign) const {
  if (!lost_) {
    for (RequestNumber k = next_ + 1; k <= next_ + kAfter && k < plan.size(); ++k) {
      const bool constant = plan.least[k] == plan.requested[k];
      if (constant && plan.requested[k] == size && same_size(plan.sign[k]) == same_size(sign)) return k;
    }
    return kNoRequest;
  }
  const Bytes previous = sizes_[(count_ - 2) % kSigns];
  const auto previous_sign = static_cast<std::uint8_t>(signs_ >> Plan::kSignBits);
  for (RequestNumber k = next_; k < next_ + kWindow; ++k) {
    if (in_range(plan, k, previous) && in_range(plan, k + 1, size) && plan.sign[k + 1] == sign &&
        same_size(plan.sign[k]) == same_size(previous_sign)) {
      return k + 1;
    }
  }
  return kNoRequest;
}

// The place nearest to the cursor where the last requests stand.
RequestNumber Tracker::anywhere(const Plan& plan) const {
  const std::pair<std::uint64_t, RequestNumber> here{signs_, next_};
  auto after = std::lower_bound(plan.index.begin(), plan.index.end(), here);
  auto before = after;
  const auto ends = [&](auto at) { return at == plan.index.end() || at->first != signs_; };
  const auto begins = [&](auto at) { return at == plan.index.begin() || std::prev(at)->first != signs_; };
  for (int i = 0; i < kCandidates && !(ends(after) && begins(before)); ++i) {
    const bool ahead = !ends(after) && (begins(before) || after->second - next_ <= next_ - std::prev(before)->second);
    const RequestNumber k = ahead ? (after++)->second : (--before)->second;
    if (stands_at(plan, k)) return k;
  }
  return kNoRequest;
}

bool Tracker::stands_at(const Plan& plan, RequestNumber k) const {
  for (std::uint32_t i = 0; i < kSigns; ++i) {
    if (!in_range(plan, k - i, sizes_[(count_ - 1 - i) % kSigns])) return false;
  }
  return true;
}

}  // namespace stowplan::allocator
