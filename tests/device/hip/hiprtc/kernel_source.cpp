#include "kernel_source.hpp"

#include <algorithm>
#include <cstddef>
#include <regex>
#include <set>

#include "simhip_abi.h"

namespace simhip {

namespace {

using std::string;

// Copies the source without comments; what stands in quotes stays.
string without_comments(const string& source) {
  string found;
  const std::size_t end = source.size();
  for (std::size_t i = 0; i < end;) {
    if (source.compare(i, 2, "//") == 0) {
      i = std::min(source.find('\n', i), end);
    } else if (source.compare(i, 2, "/*") == 0) {
      const std::size_t close = source.find("*/", i + 2);
      const std::size_t after = close == string::npos ? end : close + 2;
      found.append(static_cast<std::size_t>(std::count(source.begin() + static_cast<std::ptrdiff_t>(i),
                                                       source.begin() + static_cast<std::ptrdiff_t>(after), '\n')),
                   '\n');  // lines keep their numbers
      i = after;
    } else if (source[i] == '"') {
      std::size_t close = i + 1;
      while (close < end && source[close] != '"') close += source[close] == '\\' ? 2 : 1;
      close = std::min(close + 1, end);
      found.append(source, i, close - i);
      i = close;
    } else {
      found += source[i++];
    }
  }
  return found;
}

// Dynamic shared memory is a pointer of the block's.
string with_dynamic_shared_memory(const string& source) {
  static const std::regex declaration(
      R"(extern\s+__shared__\s+([^;{}()]*?(?:__align__\(\d+\))?[^;{}()]*?)\s*\b(\w+)\s*\[\s*\]\s*;)");
  return std::regex_replace(source, declaration, "$1* const $2 = ($1*)simhip_ctx->shared;");
}

// CuPy's reductions end in a tree of additions with a barrier after each level. One thread does the whole tree: the
// same sums in the same order, and two barriers instead of nine.
string with_one_thread_for_a_tree(const string& source) {
  static const std::regex tree(
      R"(for \((unsigned int _block = \d+ / 2;\s*_block >= _block_stride; _block >>= 1)\) \{\s*if \(_tid < _block\) \{\s*_REDUCE\(_block\);\s*\}\s*__syncthreads\(\);\s*\})");
  return std::regex_replace(source, tree,
                            "if (_tid == 0) for ($1) { for (; _tid < _block; ++_tid) { _REDUCE(_block); } _tid = 0; }\n"
                            "    __syncthreads();");
}

unsigned flags_of(const string& source) {
  static const std::regex barriers(R"(__sync|__shfl|cooperative_groups|cg::)");
  static const std::regex threads(
      R"(threadIdx|blockIdx|blockDim|gridDim|__shared__|warpSize|__lane_id|clock|__trap|assert)");
  if (std::regex_search(source, barriers)) return SIMHIP_BARRIERS;
  const bool loops = source.find("CUPY_FOR") != string::npos && !std::regex_search(source, threads);
  return loops ? SIMHIP_GRID_STRIDE : 0;
}

// Kernels that are found by their own names: those with C linkage that are no templates.
std::set<string> kernels_by_name(const string& source) {
  static const std::regex kernel(
      R"re((template\s*<[^{};]*>\s*)?(extern\s*"C"\s*)?__global__\s+((?:void\b|static\b|inline\b|__launch_bounds__\s*\([^)]*\)|__attribute__\s*\(\(.*?\)\))\s*)+(\w+)\s*\()re");
  static const std::regex c_block(R"re(extern\s*"C"\s*\{)re");
  const bool in_c_block = std::regex_search(source, c_block);
  std::set<string> found;
  for (std::sregex_iterator it(source.begin(), source.end(), kernel), end; it != end; ++it) {
    if (!(*it)[1].matched && ((*it)[2].matched || in_c_block)) found.insert((*it)[4]);
  }
  return found;
}

}  // namespace

KernelSource for_host(const string& source, const std::vector<string>& expressions) {
  const string bare = without_comments(source);
  const string flags = std::to_string(flags_of(bare));
  KernelSource made;
  made.text = with_one_thread_for_a_tree(with_dynamic_shared_memory(source)) + "\n#line 1 \"simhip\"\n";
  for (const string& name : kernels_by_name(bare)) {
    made.text += "SIMHIP_KERNEL(simk_" + name + ", &" + name + ", " + flags + ")\n";
  }
  for (std::size_t i = 0; i < expressions.size(); ++i) {
    const string symbol = "expression" + std::to_string(i);
    const string& wanted = expressions[i];
    const string name = wanted.substr(std::min(wanted.find_first_not_of("& "), wanted.size()));
    made.lowered[wanted] = symbol;
    made.text += name == wanted ? "SIMHIP_KERNEL(simk_" + symbol + ", (&" + name + "), " + flags + ")\n"
                                : "SIMHIP_GLOBAL(simg_" + symbol + ", &(" + name + "))\n";
  }
  return made;
}

string refusal(const string& source) {
  static const std::regex assembly(R"(\b(?:asm|__asm|__asm__)\b\s*(?:(?:volatile|__volatile__|goto)\s*)*\()");
  const string bare = without_comments(source);
  std::smatch found;
  if (!std::regex_search(bare, found, assembly)) return "";
  const auto line = 1 + std::count(bare.begin(), bare.begin() + found.position(), '\n');
  return "inline assembly, in line " + std::to_string(line) +
         " of the kernel, is a device's: the simulated device cannot run it; expected the same in C++";
}

}  // namespace simhip
