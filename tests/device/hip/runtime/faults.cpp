#include "faults.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "contexts.hpp"
#include "devices.hpp"
#include "memory.hpp"
#include "running.hpp"
#include "schedule.hpp"
#include "settings.hpp"

namespace simhip {

namespace {

std::atomic<std::uint64_t> faults{0};
std::mutex last_mutex;
std::string& last_fault() {
  static auto* text = new std::string;
  return *text;
}

struct sigaction before_us;

void write_out(const std::string& line) {
  std::fflush(stderr);
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (written <= 0) return;
    done += static_cast<std::size_t>(written);
  }
}

// The process ends here, so the report may allocate and take locks; the work that failed holds none of ours.
void on_bad_access(int number, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  sigaction(number, &before_us, nullptr);
  if (running != nullptr || memory().is_ours(at)) {
    write_out("simhip: fault: " + what_runs() + " touches " + hex(at) + ", " + memory().describe(at) + "\n");
  }
}

}  // namespace

std::string hex(std::uintptr_t address) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

void say(const std::string& text) { write_out("simhip: " + text + "\n"); }

void fault(const std::string& text) {
  const std::string line = "fault: " + what_runs() + " " + text;
  say(line);
  if (settings().faults == Faults::stop) std::abort();
  if (settings().faults == Faults::stick) lose_context(running != nullptr ? running->stream->device : current_device);
  const std::lock_guard<std::mutex> guard(last_mutex);
  last_fault() = line;
  ++faults;
}

hipError_t refuse_dead(const char* what, hipError_t error) {
  fault(std::string("names ") + what + " that was destroyed, or was never made");
  return note(error);
}

void watch_for_bad_accesses() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bad_access;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_us);
  });
}

}  // namespace simhip

extern "C" {

// How many faults were counted.
std::uint64_t simhip_faults() { return simhip::faults; }

// Copies the last fault's text, cut to `size` with its end; returns its length.
std::size_t simhip_last_fault(char* text, std::size_t size) {
  const std::lock_guard<std::mutex> guard(simhip::last_mutex);
  if (size != 0) std::snprintf(text, size, "%s", simhip::last_fault().c_str());
  return simhip::last_fault().size();
}

}  // extern "C"
