// hipRAND's functions for the host: numbers of a counter through a mixing function, whichever generator was asked for.
// Equal seeds give equal numbers; they are not those of a device.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "enqueue.hpp"

namespace {

struct Generator {
  std::uint64_t seed = 0;
  std::uint64_t next = 0;  // numbers drawn so far
  hipStream_t stream = nullptr;
};

enum Status { success = 0, launch_failure = 201 };

// SplitMix64's finalizer, of a seed and a counter.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t counter) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15U + counter * 0xd1342543de82ef95U + 0x2545f4914f6cdd1dU;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

double uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 1) * 0x1p-53; }  // (0, 1]

// Box and Muller's transformation.
double normal(std::uint64_t seed, std::uint64_t counter) {
  const double radius = std::sqrt(-2 * std::log(uniform(mixed(seed, 2 * counter))));
  return radius * std::cos(2 * M_PI * uniform(mixed(seed, 2 * counter + 1)));
}

template <class T, class F>
int fill(Generator* generator, T* out, std::size_t n, F draw) {
  const std::uint64_t seed = generator->seed;
  const std::uint64_t from = generator->next;
  generator->next += n;
  const hipError_t error = simhip_enqueue_ranges(generator->stream, "random numbers", {{out, n * sizeof(T)}}, [=] {
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<T>(draw(seed, from + i));
  });
  return error == hipSuccess ? success : launch_failure;
}

}  // namespace

extern "C" {

int hiprandCreateGenerator(Generator** generator, int) {
  *generator = new Generator;
  return success;
}

int hiprandDestroyGenerator(Generator* generator) {
  delete generator;
  return success;
}

int hiprandGetVersion(int* version) {
  *version = 300000;
  return success;
}

int hiprandSetStream(Generator* generator, hipStream_t stream) {
  generator->stream = stream;
  return success;
}

int hiprandSetPseudoRandomGeneratorSeed(Generator* generator, unsigned long long seed) {
  generator->seed = seed;
  generator->next = 0;
  return success;
}

int hiprandSetGeneratorOffset(Generator* generator, unsigned long long offset) {
  generator->next = offset;
  return success;
}

int hiprandGenerate(Generator* generator, unsigned* out, std::size_t n) {
  return fill(generator, out, n, [](std::uint64_t s, std::uint64_t i) { return mixed(s, i) >> 32; });
}

int hiprandGenerateUniform(Generator* generator, float* out, std::size_t n) {
  return fill(generator, out, n,
              [](std::uint64_t s, std::uint64_t i) { return (static_cast<float>(mixed(s, i) >> 40) + 1) * 0x1p-24F; });
}

int hiprandGenerateUniformDouble(Generator* generator, double* out, std::size_t n) {
  return fill(generator, out, n, [](std::uint64_t s, std::uint64_t i) { return uniform(mixed(s, i)); });
}

int hiprandGenerateNormal(Generator* generator, float* out, std::size_t n, float mean, float deviation) {
  return fill(generator, out, n, [=](std::uint64_t s, std::uint64_t i) { return mean + deviation * normal(s, i); });
}

int hiprandGenerateNormalDouble(Generator* generator, double* out, std::size_t n, double mean, double deviation) {
  return fill(generator, out, n, [=](std::uint64_t s, std::uint64_t i) { return mean + deviation * normal(s, i); });
}
}
