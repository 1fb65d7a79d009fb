#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace suites::eval {

/// The command line of nsa-eval; the words are checked, files and tensors not yet.
struct EvalOptions {
  std::string in, out;
  std::string config;   ///< file whose keys override the metadata's, "" for none
  std::string op;       ///< "": by the kind of the file
  std::string backend;  ///< "": by the switches, else the default
  std::string device = "cpu";
  std::string dtype = "fp64";
  std::string mode;              ///< "": by the kind of the file
  std::vector<int64_t> prefill;  ///< one for all sequences, or one each; empty: the metadata's
  bool grad = false;
  bool p_cmp = false;  ///< write p_cmp whatever its size
};

enum class ParseEnd { kRun, kHelp, kBad };

/// Reads the command line; prints help or the error.
ParseEnd parse_options(int argc, char** argv, EvalOptions& options);

}  // namespace suites::eval
