// hipRAND's host API: counters through one mixing function, whatever generator was asked for.
#include "enqueue.hpp"
#include <cmath>
#include <cstring>
struct Generator { uint64_t seed = 0, offset = 0; hipStream_t stream = nullptr; };
enum { OK = 0, FAILED = 201 };
static inline uint64_t mix(uint64_t seed, uint64_t i) {
    uint64_t z = seed * 0x9e3779b97f4a7c15u + i * 0xd1342543de82ef95u + 0x2545f4914f6cdd1du;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static inline double uniform(uint64_t bits) { return (double(bits >> 11) + 1) * 0x1p-53; }     // (0, 1]
template <class F> static int fill(Generator* g, size_t n, F f) {
    uint64_t seed = g->seed, from = g->offset;
    g->offset += n;
    return simhip_enqueue(g->stream, "random numbers", [=] { for (size_t i = 0; i < n; ++i) f(i, seed, from + i); }) ? FAILED : OK;
}
static inline double normal(uint64_t seed, uint64_t i) {
    return std::sqrt(-2 * std::log(uniform(mix(seed, 2 * i)))) * std::cos(2 * M_PI * uniform(mix(seed, 2 * i + 1)));
}
extern "C" {
int hiprandCreateGenerator(Generator** g, int) { *g = new Generator; return OK; }
int hiprandDestroyGenerator(Generator* g) { delete g; return OK; }
int hiprandGetVersion(int* v) { *v = 300000; return OK; }
int hiprandSetStream(Generator* g, hipStream_t s) { g->stream = s; return OK; }
int hiprandSetPseudoRandomGeneratorSeed(Generator* g, unsigned long long s) { g->seed = s; g->offset = 0; return OK; }
int hiprandSetGeneratorOffset(Generator* g, unsigned long long o) { g->offset = o; return OK; }
int hiprandGenerate(Generator* g, unsigned* p, size_t n) { return fill(g, n, [=](size_t i, uint64_t s, uint64_t c) { p[i] = unsigned(mix(s, c) >> 32); }); }
int hiprandGenerateUniform(Generator* g, float* p, size_t n) {
    return fill(g, n, [=](size_t i, uint64_t s, uint64_t c) { p[i] = (float(mix(s, c) >> 40) + 1) * 0x1p-24f; });
}
int hiprandGenerateUniformDouble(Generator* g, double* p, size_t n) { return fill(g, n, [=](size_t i, uint64_t s, uint64_t c) { p[i] = uniform(mix(s, c)); }); }
int hiprandGenerateNormal(Generator* g, float* p, size_t n, float m, float d) { return fill(g, n, [=](size_t i, uint64_t s, uint64_t c) { p[i] = float(m + d * normal(s, c)); }); }
int hiprandGenerateNormalDouble(Generator* g, double* p, size_t n, double m, double d) { return fill(g, n, [=](size_t i, uint64_t s, uint64_t c) { p[i] = m + d * normal(s, c); }); }
int hiprandGenerateLogNormal(Generator* g, float* p, size_t n, float m, float d) { return fill(g, n, [=](size_t i, uint64_t s, uint64_t c) { p[i] = float(std::exp(m + d * normal(s, c))); }); }
int hiprandGenerateLogNormalDouble(Generator* g, double* p, size_t n, double m, double d) { return fill(g, n, [=](size_t i, uint64_t s, uint64_t c) { p[i] = std::exp(m + d * normal(s, c)); }); }
int hiprandGeneratePoisson(Generator* g, unsigned* p, size_t n, double lambda) {
    return fill(g, n, [=](size_t i, uint64_t s, uint64_t c) {
        double limit = std::exp(-lambda), product = 1;
        unsigned k = 0;
        for (uint64_t j = 0; (product *= uniform(mix(s ^ c, j + 1))) > limit; ++j) ++k;
        p[i] = k;
    });
}
}
