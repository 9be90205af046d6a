// hiprtc, HIP's compiler at run time, on a compiler of the host: HIP C++ in, a shared library out.
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compiler.hpp"
#include "kernel_source.hpp"

namespace {

using std::string;

struct Program {
  string source;
  simhip::Compilation compilation;
  std::vector<string> expressions;
  simhip::KernelSource for_host;
  simhip::Compiled compiled{};
};

enum Result { success = 0, invalid_option = 5, compilation_failed = 6, no_such_expression = 9 };

// Options of the preprocessor are taken, others are a device compiler's own and left out. False: no option at all.
bool take_options(Program& program, int count, const char** options) {
  program.compilation.options.clear();
  for (int i = 0; i < count; ++i) {
    const string option = options[i];
    const string kind = option.substr(0, 2);
    if (kind == "-I" || kind == "-D" || kind == "-U") {
      program.compilation.options.push_back(option);
    } else if (option.empty() || option[0] != '-') {
      program.compiled = {false, "", "simhip: unknown option " + option};
      return false;
    }
  }
  return true;
}

}  // namespace

extern "C" {

int hiprtcVersion(int* major, int* minor) {
  *major = 7;
  *minor = 0;
  return success;
}

const char* hiprtcGetErrorString(int result) {
  static const char* const names[] = {"HIPRTC_SUCCESS",
                                      "HIPRTC_ERROR_OUT_OF_MEMORY",
                                      "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                      "HIPRTC_ERROR_INVALID_INPUT",
                                      "HIPRTC_ERROR_INVALID_PROGRAM",
                                      "HIPRTC_ERROR_INVALID_OPTION",
                                      "HIPRTC_ERROR_COMPILATION",
                                      "HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE",
                                      "HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
                                      "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID"};
  return result >= 0 && result < 10 ? names[result] : "HIPRTC_ERROR_INTERNAL_ERROR";
}

int hiprtcCreateProgram(Program** out, const char* source, const char* name, int count, const char** headers,
                        const char** names) {
  auto made = std::make_unique<Program>();
  if (source != nullptr) made->source = source;
  if (name != nullptr) made->compilation.name = name;
  for (int i = 0; i < count; ++i) made->compilation.headers.emplace_back(names[i], headers[i]);
  *out = made.release();
  return success;
}

int hiprtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return success;
}

int hiprtcAddNameExpression(Program* program, const char* expression) {
  program->expressions.emplace_back(expression);
  return success;
}

int hiprtcCompileProgram(Program* program, int count, const char** options) {
  if (!take_options(*program, count, options)) return invalid_option;
  const string refused = simhip::refusal(program->source);
  if (!refused.empty()) {
    program->compiled = {false, "", "simhip: " + refused};
    return compilation_failed;
  }
  program->for_host = simhip::for_host(program->source, program->expressions);
  program->compilation.text = program->for_host.text;
  program->compiled = simhip::compile(program->compilation);
  return program->compiled.done ? success : compilation_failed;
}

int hiprtcGetCodeSize(Program* program, std::size_t* size) {
  *size = program->compiled.code.size();
  return success;
}

int hiprtcGetCode(Program* program, char* out) {
  std::memcpy(out, program->compiled.code.data(), program->compiled.code.size());
  return success;
}

int hiprtcGetProgramLogSize(Program* program, std::size_t* size) {
  *size = program->compiled.log.size() + 1;
  return success;
}

int hiprtcGetProgramLog(Program* program, char* out) {
  std::memcpy(out, program->compiled.log.c_str(), program->compiled.log.size() + 1);
  return success;
}

int hiprtcGetLoweredName(Program* program, const char* expression, const char** out) {
  const auto found = program->for_host.lowered.find(expression);
  if (found == program->for_host.lowered.end()) return no_such_expression;
  *out = found->second.c_str();
  return success;
}
}
