// To be preloaded: C++'s `new` finds no memory once, when it was called so many times.
#include <atomic>
#include <cstdlib>
#include <new>

static std::atomic<long> left{0};
extern "C" void fail_at(long calls) { left = calls; }
extern "C" long calls_left() { return left; }

void* operator new(std::size_t size) {
  if (left > 0 && --left == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
