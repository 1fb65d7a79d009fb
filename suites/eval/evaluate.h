#pragma once
#include <string>
#include <vector>

#include "suites/eval/options.h"
#include "suites/reference_cases/tensor_files.h"

namespace suites::eval {

struct Evaluated {
  TensorFile file;                    ///< what --out gets
  std::vector<std::string> warnings;  ///< what a reader should know, one line each
};

/// Runs one operator on the tensors of `in`. `overriding` is the text of --config, or "".
/// Metadata of the result, all JSON: `config` in force; `eval` (op, mode, dtype, device, prefill);
/// `ran`, by branch or stage a list of {backend, count, requested, detail, reason};
/// `switches` that are not at their default; `sdpa_calls` with NSA_SDPA_AUDIT. Throws
/// nsa::InputError, std::invalid_argument or c10::Error ("nsa::...") for what is wrong with input
/// and options.
Evaluated evaluate(TensorFile in, const EvalOptions& options, const std::string& overriding = "");

}  // namespace suites::eval
