#include "profile.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

namespace simhip {

namespace {

struct Row {
  std::string what;
  double seconds = 0;
  std::uint64_t times = 0;
};

constexpr std::size_t kMostRows = 25;

std::map<std::string, Row>& rows() {
  static auto* all = new std::map<std::string, Row>;
  return *all;
}

void print() {
  std::vector<Row> sorted;
  double total = 0;
  for (const auto& entry : rows()) {
    sorted.push_back(entry.second);
    total += entry.second.seconds;
  }
  std::sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  std::fprintf(stderr, "simhip: %.3f s of work\n", total);
  if (sorted.size() > kMostRows) sorted.resize(kMostRows);
  for (const Row& row : sorted) {
    std::fprintf(stderr, "%9.3f s %9llu times  %s\n", row.seconds, static_cast<unsigned long long>(row.times),
                 row.what.c_str());
  }
}

}  // namespace

void note_time(const Running& done) {
  if (rows().empty()) std::atexit(print);
  Row& row = rows()[done.what];
  row.what = done.what;
  row.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - done.since).count();
  ++row.times;
}

}  // namespace simhip
