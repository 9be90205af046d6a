#include "compiler.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace simhip {

namespace {

namespace fs = std::filesystem;
using std::string;

std::atomic<unsigned long long> compilations{0};

// The folder that this library was built into: lib, include and kernels stand in it.
fs::path home() {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&home), &info);
  return fs::path(info.dli_fname).parent_path().parent_path();
}

string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const fs::path& path, const string& text) { std::ofstream(path, std::ios::binary) << text; }

string cxx() {
  const char* chosen = std::getenv("SIMHIP_CXX");
  return chosen != nullptr && *chosen != '\0' ? chosen : "g++";
}

// Two FNV-1a hashes of 64 bits from different starts.
class Hash {
 public:
  void add(const string& text) {
    for (const char c : std::to_string(text.size()) + ":" + text) {
      for (std::uint64_t& h : state_) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
  }
  string hex() const {
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(state_[0]),
                  static_cast<unsigned long long>(state_[1]));
    return text;
  }

 private:
  std::uint64_t state_[2] = {0xcbf29ce484222325U, 0x9e3779b97f4a7c15U};
};

string key_of(const Compilation& wanted, const string& toolchain) {
  Hash hash;
  for (const string& part : {toolchain, cxx(), wanted.text}) hash.add(part);
  for (const auto& [name, text] : wanted.headers) {
    hash.add(name);
    hash.add(text);
  }
  for (const string& option : wanted.options) hash.add(option);
  return hash.hex();
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    string name = (fs::temp_directory_path() / "simhip-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  fs::path path;
};

// Runs a command with its messages in a file; returns its exit status, or -1 where it could not be started.
int run(std::vector<string> command, const string& log) {
  std::vector<char*> arguments;
  for (string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file >= 0) dup2(file, STDERR_FILENO);
    execvp(arguments[0], arguments.data());
    const char failed = 1;  // the pipe closes by itself where the command starts
    if (::write(pipes[1], &failed, 1) < 0) _exit(126);
    _exit(127);
  }
  close(pipes[1]);
  char failed = 0;
  const bool started = child > 0 && ::read(pipes[0], &failed, 1) == 0;
  close(pipes[0]);
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return started ? status : -1;
}

// The command, from the flags that the precompiled header was made with: other flags would leave it unused.
std::vector<string> command_for(const Compilation& wanted, const fs::path& folder) {
  std::vector<string> command{cxx(), "-x", "c++"};
  std::istringstream flags(read(home() / "flags"));
  for (string flag; flags >> flag;) command.push_back(flag);
  const string include = (home() / "include").string();
  for (const string& word :
       {string("-shared"), string("-include"), include + "/simhip_device.h", "-I" + include, "-I" + folder.string()}) {
    command.push_back(word);
  }
  for (const string& option : wanted.options) command.push_back(option);
  for (const string& word : {string("-o"), (folder / "kernel.so").string(), (folder / "kernel.cpp").string(),
                             "-L" + (home() / "lib").string(), string("-l:libamdhip64.so.7")}) {
    command.push_back(word);
  }
  return command;
}

void keep(const fs::path& cached, const string& code) {
  std::error_code failed;
  fs::create_directories(cached.parent_path(), failed);
  const fs::path part = cached.string() + "." + std::to_string(getpid());
  write(part, code);
  fs::rename(part, cached, failed);  // a kernel that cannot be kept is compiled again
}

}  // namespace

Compiled compile(const Compilation& wanted) {
  const string toolchain = read(home() / "toolchain");
  const fs::path cached = home() / "kernels" / (key_of(wanted, toolchain) + ".so");
  string code = read(cached);
  if (!code.empty()) return {true, std::move(code), ""};

  const TemporaryFolder folder;
  if (folder.path.empty()) return {false, "", "simhip: no temporary folder can be made"};
  for (const auto& [name, text] : wanted.headers) {
    std::error_code ignored;
    fs::create_directories((folder.path / name).parent_path(), ignored);
    write(folder.path / name, text);
  }
  write(folder.path / "kernel.cpp",
        "#line 1 \"" + (wanted.name.empty() ? "program" : wanted.name) + "\"\n" + wanted.text);
  const fs::path log = folder.path / "log";
  ++compilations;
  const int status = run(command_for(wanted, folder.path), log);
  if (status == -1) {
    return {
        false, "",
        "simhip: the simulated device compiles kernels with " + cxx() +
            ", which cannot be started; install it (Debian and Ubuntu: apt install g++) or name another in SIMHIP_CXX"};
  }
  if (status != 0) return {false, "", read(log)};
  code = read(folder.path / "kernel.so");
  keep(cached, code);
  return {true, std::move(code), read(log)};
}

}  // namespace simhip

unsigned long long simhip_compilations() { return simhip::compilations; }
