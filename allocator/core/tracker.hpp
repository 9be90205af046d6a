// Where in a merged plan (plan.hpp) a step is.
//
// The steps that a merged plan stands for differ: a loop runs longer or shorter, optional requests are missing, sizes lie
// between the smallest and the largest that were seen. The tracker names the planned request that each request is:
//
//   next       the request looks like the one that the plan expects: its size lies within twice the range that was seen
//   landmark   a block that lived long was freed, and the plan knows where such a block is always due: a backward loop
//              frees what the forward loop kept, and so says in which of its iterations it is
//   near       one or a few requests are missing: one of constant size comes up, or two that stand side by side ahead
//   anywhere   where things look wrong: the last kSigns requests stand somewhere in the plan with the same *signs* (what is
//              freed before them, and whether they ask for as much as the request before), and with sizes in range; the
//              nearest such place. Loops begin with exact sizes, so the next one is found though hundreds of requests
//              of the former are missing
//
// A guess may be wrong and costs a planned address, never an overlap: the replay core sees to that.
//
// O(1) per request: near looks at kWindow numbers, anywhere at kCandidates places and at most every kPause requests.
#pragma once

#include <array>
#include <cstdint>

#include "plan.hpp"

namespace stowplan::allocator {

class Tracker {
 public:
  static constexpr RequestNumber kAfter = 8;  // how far after a landmark, or a missing one, the request may stand
  static constexpr RequestNumber kWindow = 64;
  static constexpr int kDoubt = 20;
  static constexpr int kCandidates = 256;
  static constexpr std::uint32_t kPause = 4;

  void begin();

  // A block is freed that the step asked for `age` requests ago, and that was taken for `slot`, or kNoRequest.
  void freed(const Plan& plan, RequestNumber slot, std::uint32_t age);

  // The planned request that this one is, or kNoRequest; it may be before the last one, and larger than planned.
  RequestNumber locate(const Plan& plan, Bytes size);

 private:
  static bool in_range(const Plan& plan, std::size_t k, Bytes size) {
    return k < plan.size() && plan.least[k] <= size && size <= plan.requested[k];
  }
  static bool alike(const Plan& plan, std::size_t k, Bytes size) {
    return k < plan.size() && plan.least[k] <= 2 * size && size <= 2 * plan.requested[k];
  }
  RequestNumber at_landmark(const Plan& plan, Bytes size, std::uint8_t sign) const;
  RequestNumber nearby(const Plan& plan, Bytes size, std::uint8_t sign) const;
  RequestNumber anywhere(const Plan& plan) const;
  bool stands_at(const Plan& plan, RequestNumber k) const;

  static constexpr std::uint32_t kSigns = Plan::kSigns;

  RequestNumber next_ = 0;
  RequestNumber landmark_ = kNoRequest;  // of the last block freed since the last request that has one
  std::uint32_t frees_ = 0;              // of young blocks, since the last request
  std::uint32_t count_ = 0;              // of requests
  std::uint32_t looked_ = 0;             // the request at which anywhere() was asked last
  std::array<Bytes, kSigns> sizes_{};    // of the last requests, by their number
  std::uint64_t signs_ = 0;              // likewise, the last one in the lowest bits
  int doubt_ = 0;
  int sure_ = 0;  // requests in a row that looked right
  bool lost_ = false;  // the last request was not found
};

}  // namespace stowplan::allocator
