// What a device pool asks of its owner: upstream's memory, events, streams. Its owner is Python, or a test.
//
// All of it is foreign code. It may raise errors of its own kind, let other threads run, and run finalizers, which free
// blocks of this very pool. So it is never called, and nothing of the owner's is ever dropped, under the pool's lock.
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include "plan.hpp"

namespace stowplan::allocator {

// Names an object that the owner keeps until it is dropped: a stream, an event, memory, an error. 0: none.
using Token = std::uint64_t;

// The owner has an error pending, which its caller is to hear of.
struct OwnersError : std::exception {};

// Upstream's answer: the address, and for an arena its memory, kept; or an error. Only where that says that there is no
// memory, there may be a remedy: another one is the caller's to hear of.
struct Answer {
  std::uintptr_t address = 0;
  Token memory = 0;
  Token error = 0;
  bool out_of_memory = false;
};

// C functions of the owner's, with `owner` as their first argument. Those that return int return -1 where an error is
// pending; the others do not fail.
struct Device {
  void* owner = nullptr;
  // Asks upstream; what it raises is an answer. The memory of a block is given to `client`, that of an arena, which has
  // none, is kept. `sample`: the request is one of a step without a plan.
  int (*ask)(void* owner, void* client, Bytes size, bool sample, Answer* answer) = nullptr;
  // Has upstream give back to the device what it keeps free.
  int (*trim)(void* owner) = nullptr;
  // How many bytes all arenas in virtual memory may take now, so that they and upstream's blocks take no more than has
  // been alive at a time; `within_limit`: so many as a limit of the owner's allows. -1: an error is pending.
  Bytes (*room)(void* owner, bool within_limit) = nullptr;
  // These arenas are to have so many bytes from now on: upstream gives back what it keeps beyond its share.
  int (*note_arenas)(void* owner, Bytes size) = nullptr;
  // Whether a stream that the pool has served is being captured into a graph.
  int (*capturing)(void* owner) = nullptr;
  // Waits for all that these streams have been given; an error where one of them is being captured. A wait for the
  // device would end the captures of all streams, also of those that the pool does not know.
  int (*synchronize)(void* owner) = nullptr;
  int (*record)(void* owner, Token stream, Token* event) = nullptr;  // no event while the stream is being captured
  int (*done)(void* owner, Token event) = nullptr;
  int (*wait)(void* owner, Stream stream, Token event) = nullptr;
  void (*unguard)(void* owner, Token memory) = nullptr;  // no stream uses it any more: it may go back at once
  void (*drop)(void* owner, Token token) = nullptr;
  void (*forget_error)(void* owner) = nullptr;  // the one that is pending

  static int checked(int result) {
    if (result < 0) throw OwnersError();
    return result;
  }
};

// A token that is dropped when this goes.
class Kept {
 public:
  Kept() = default;
  Kept(const Device& device, Token token) : device_(&device), token_(token) {}
  Kept(Kept&& other) noexcept { swap(other); }
  Kept& operator=(Kept&& other) noexcept {
    Kept(std::move(other)).swap(*this);
    return *this;
  }
  ~Kept() {
    if (token_ != 0) device_->drop(device_->owner, token_);
  }

  Token token() const { return token_; }
  Token release() { return std::exchange(token_, 0); }  // it is the caller's now
  void swap(Kept& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(token_, other.token_);
  }

 private:
  const Device* device_ = nullptr;
  Token token_ = 0;
};

}  // namespace stowplan::allocator
