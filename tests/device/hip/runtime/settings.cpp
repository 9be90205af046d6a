#include "settings.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>

namespace simhip {

namespace {

[[noreturn]] void refuse(const char* name, const char* text, const std::string& wanted) {
  std::fprintf(stderr, "simhip: %s=%s is not %s\n", name, text, wanted.c_str());
  std::fflush(nullptr);
  std::_Exit(2);
}

const char* value_of(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

std::uint64_t whole(const char* name, std::uint64_t otherwise, std::uint64_t least, std::uint64_t most) {
  const char* text = value_of(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 0);
  if (std::isdigit(static_cast<unsigned char>(*text)) == 0 || *end != '\0' || value < least || value > most) {
    refuse(name, text, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

std::size_t unit_of(std::string suffix) {
  suffix.erase(0, std::min(suffix.find_first_not_of(' '), suffix.size()));
  const char* const binary[] = {"", "KiB", "MiB", "GiB", "TiB"};
  const char* const decimal[] = {"B", "KB", "MB", "GB", "TB"};
  std::size_t of_binary = 1;
  std::size_t of_decimal = 1;
  for (int i = 0; i < 5; ++i, of_binary *= 1024, of_decimal *= 1000) {
    if (suffix == binary[i]) return of_binary;
    if (suffix == decimal[i]) return of_decimal;
  }
  return 0;
}

std::size_t size(const char* name, std::size_t otherwise, double least = 1) {
  const char* text = value_of(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  const std::size_t unit = end == text ? 0 : unit_of(end);
  const double bytes = value * static_cast<double>(unit);
  if (std::isdigit(static_cast<unsigned char>(*text)) == 0 || unit == 0 || bytes < least || bytes > 0x1p46) {
    refuse(name, text, "a size such as 16GiB, 300MB or 4096 (bytes), at most 64TiB");
  }
  return static_cast<std::size_t>(bytes);
}

// The index of the variable's value among the words; 0 where it is not set.
int word(const char* name, std::initializer_list<const char*> words) {
  const char* text = value_of(name);
  if (text == nullptr) return 0;
  std::string wanted = "one of";
  int index = 0;
  for (const char* one : words) {
    if (std::string(one) == text) return index;
    wanted += std::string(" ") + one;
    ++index;
  }
  refuse(name, text, wanted);
}

bool flag(const char* name, bool otherwise) { return whole(name, otherwise ? 1 : 0, 0, 1) != 0; }

Settings read() {
  Settings s{};
  s.devices = static_cast<int>(whole("SIMHIP_DEVICES", 1, 0, 64));
  s.memory = size("SIMHIP_MEMORY", std::size_t{8} << 30);
  s.granularity = size("SIMHIP_GRANULARITY", std::size_t{2} << 20);
  s.context = size("SIMHIP_CONTEXT", (s.memory / 32 + s.granularity - 1) / s.granularity * s.granularity, 0);
  s.page = size("SIMHIP_PAGE", std::size_t{2} << 20);
  s.address_space = size("SIMHIP_ADDRESS_SPACE", std::max(std::size_t{256} << 30, 4 * s.memory));
  s.schedule = static_cast<Schedule>(word("SIMHIP_SCHEDULE", {"lazy", "sync", "eager", "adversarial"}));
  s.seed = whole("SIMHIP_SEED", 0, 0, UINT64_MAX);
  s.delay = whole("SIMHIP_DELAY", 0, 0, 10'000'000);
  s.timeout = whole("SIMHIP_TIMEOUT", 300, 1, 1'000'000);
  s.faults = static_cast<Faults>(word("SIMHIP_FAULTS", {"stop", "count", "stick"}));
  s.refuse_host = word("SIMHIP_HOST_ACCESS", {"allow", "refuse"}) == 1;
  s.gil = flag("SIMHIP_GIL", true);
  s.memory_pools = flag("SIMHIP_MEMORY_POOLS", true);
  s.virtual_memory = static_cast<int>(whole("SIMHIP_VIRTUAL_MEMORY", 1, 0, 2));
  s.mapping_waits = flag("SIMHIP_MAPPING_WAITS", false);
  s.trace = flag("SIMHIP_TRACE", false);
  if (s.address_space < s.memory) refuse("SIMHIP_ADDRESS_SPACE", value_of("SIMHIP_ADDRESS_SPACE"), "a device's memory");
  return s;
}

}  // namespace

const Settings& settings() {
  static const Settings s = read();
  return s;
}

}  // namespace simhip
