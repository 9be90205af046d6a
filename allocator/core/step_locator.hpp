// Where in a merged plan (plan.hpp) a step is.
//
// The steps that a merged plan stands for differ: a loop runs longer or shorter, optional requests are missing, sizes
// lie between the smallest and the largest that were seen. So a few *guesses* of the place are kept, each with the
// points that it has earned, and the best one names the planned request that each request is:
//
//     guess        a b c c c c d e        matching   its request is the plan's: points for what is freed before it, for
//     plan         a b c c c c d e ...               its size, and for the landmark
//                            ^ next       skipping   up to kSkips requests are missing: points off
//                                         extra      the plan does not know the request: points off
//                                         jumping    the last requests stand elsewhere in the plan, before the same
//                                                    frees: points off, the more the further, and off again for going
//                                                    back
//
// This is the matching of planning/merging/core/match.hpp as requests come in: what a guess may do, and what it costs,
// is in its terms the score of a pair and of a gap. A guess that turns out to be wrong is overtaken by one that was
// right.
//
// Landmarks: a block that lived long was freed, and the plan knows where such a block is always due: a backward loop
// frees what the forward loop kept, and so says in which of its iterations it is.
//
// A wrong place costs a planned address, never an overlap: the replay core sees to that.
//
// O(1) per request: kGuesses guesses, kSkips numbers each, and where the best one is in doubt, kCandidates other
// places.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "plan.hpp"

namespace stowplan::allocator {

class StepLocator {
 public:
  static constexpr std::size_t kGuesses = 8;
  static constexpr int kHopeless = 48;  // points behind the best
  static constexpr int kSkips = 8;
  static constexpr RequestNumber kAfter = 8;  // how far after a landmark the request may stand
  static constexpr int kCandidates = 64;      // places looked at in either direction
  static constexpr int kFound = 3;            // of which as many become guesses

  // A block is freed that the step asked for `age` requests ago, and that was taken for `slot`, or kNoRequest.
  void freed(const Plan& plan, RequestNumber slot, std::uint32_t age);

  // The planned request that this one is, or kNoRequest; it may be before the last one, and larger than planned.
  RequestNumber locate(const Plan& plan, Bytes size);

 private:
  struct Asked {
    Bytes size = 0;
    std::uint64_t sign = 0;
    int before = 0;  // points of the best guess, before it
  };
  struct Guess {
    RequestNumber next = 0;         // the request that comes next
    RequestNumber at = kNoRequest;  // the one that the last request was
    int points = 0;
  };

  static int match(const Plan& plan, std::size_t k, const Asked& asked);
  int landmark(RequestNumber k) const;
  void follow(const Plan& plan, const Guess& guess, const Asked& asked);
  void jump_to_landmark(const Plan& plan, RequestNumber from, const Asked& asked);
  void jump(const Plan& plan, RequestNumber from);
  bool stands_at(const Plan& plan, RequestNumber from, RequestNumber k);
  bool is_beaten(int points) const;
  void consider(Guess guess);

  std::array<Guess, kGuesses> guesses_, former_;  // the best first
  std::size_t count_ = 1, former_count_ = 0;
  std::array<Asked, Plan::kSigns> asked_{};  // the last requests, by their number
  std::uint32_t requests_ = 0;
  RequestNumber landmark_ = kNoRequest;  // of the last block freed since the last request that has one
  std::uint64_t sign_ = 0;               // of the coming request
};

}  // namespace stowplan::allocator
