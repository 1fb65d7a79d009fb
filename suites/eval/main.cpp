// Program nsa-eval: Native Sparse Attention on the tensors of a file, so that anybody can compare.
#include <ATen/ATen.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <new>
#include <stdexcept>

#include "base/text/plain_text.h"
#include "nsa/program/input_error.h"
#include "nsa/program/quick_exit.h"
#include "nsa/program/working_directory.h"
#include "suites/eval/evaluate.h"

namespace {

namespace fs = std::filesystem;
using suites::eval::EvalOptions;
using suites::eval::ParseEnd;

constexpr int kBadInput = 2, kFailed = 3;

int print(int status, const std::string& text) {
  std::fprintf(stderr, "nsa-eval: %s\n", base::plain_text(text).c_str());
  return status;
}

std::string config_text(const std::string& path) {
  if (path.empty()) return "";
  constexpr uintmax_t kMost = 1 << 20;
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kMost)
    throw nsa::InputError("--config " + path + ": must be a JSON file of at most 1 MiB");
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.good() && !in.eof()) throw nsa::InputError("--config " + path + ": cannot be read");
  if (text.empty()) throw nsa::InputError("--config " + path + ": is empty");
  return text;
}

/// Refuses a bad output path before the computation, not after it.
void check_out(const fs::path& path, const fs::path& in) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder))
    throw nsa::InputError("--out " + path.string() + ": there is no folder " + folder.string());
  if (fs::is_directory(path))
    throw nsa::InputError("--out " + path.string() + ": is a folder; name a file");
  std::error_code error;
  if (fs::equivalent(path, in, error))
    throw nsa::InputError("--out " + path.string() + ": is the input file; name another");
}

suites::eval::Evaluated run(const EvalOptions& options) {
  check_out(options.out, options.in);
  const std::string overriding = config_text(options.config);
  return evaluate(suites::read_tensor_file(options.in), options, overriding);
}

/// Operators report a bad argument as `nsa::<op>: <argument> must be ...`.
int report(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return print(text.starts_with("nsa::") ? kBadInput : kFailed, text);
}

int evaluate_and_write(const EvalOptions& options) {
  suites::eval::Evaluated result;
  try {
    result = run(options);
  } catch (const nsa::InputError& error) {
    return print(kBadInput, error.what());
  } catch (const suites::TensorFileError& error) {
    return print(kBadInput, error.what());
  } catch (const std::invalid_argument& error) {
    return print(kBadInput, error.what());
  } catch (const c10::Error& error) {
    return report(error);
  }
  for (const std::string& warning : result.warnings) print(0, "warning: " + warning);
  write_tensor_file(options.out, result.file);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  EvalOptions options;
  switch (parse_options(argc, argv, options)) {
    case ParseEnd::kHelp:
      return 0;
    case ParseEnd::kBad:
      return kBadInput;
    case ParseEnd::kRun:
      break;
  }
  try {
    return evaluate_and_write(options);
  } catch (const std::bad_alloc&) {
    return print(kFailed, "out of memory");
  } catch (const std::exception& error) {
    return print(kFailed, error.what());
  }
}
