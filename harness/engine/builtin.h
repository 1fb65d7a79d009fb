#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/protocol/case.h"
#include "base/protocol/emitter.h"

namespace harness {

/// What a builtin gets: the same case line a worker would get, and the run so far.
struct BuiltinCall {
  base::protocol::CaseIn in;
  std::filesystem::path run_dir;
  std::function<int()> stop_signal;  ///< non-zero: return soon, the run was interrupted
};

/// A phase that needs no worker (`builtin:NAME`). It runs in the engine and writes the lines of the
/// worker protocol: the engine writes `hello` and `done`, the builtin everything between, with one
/// end_case or fail_case for each case. An exception makes the phase FAILED with cause
/// BUILTIN_ERROR and its text as reason.
using Builtin = std::function<void(const BuiltinCall&, base::protocol::Emitter&)>;
using Builtins = std::map<std::string, Builtin>;  ///< by NAME

}  // namespace harness
