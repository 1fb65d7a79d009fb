#pragma once
#include <string>

#include "suites/eval/options.h"
#include "suites/tensor_file/tensor_file.h"

namespace suites::eval {

struct Evaluated {
  TensorFile file;      ///< what --out gets
  std::string ignored;  ///< names in the input that mean nothing to nsa-eval, "" for none
};

/// Runs one operator on the tensors of `in`. `overriding` is the text of --config, or "".
/// Metadata of the result, all JSON: `config` in force; `eval` (op, mode, dtype, device, prefill);
/// `ran`, by branch or stage a list of {backend, count, ...}; `switches` that are not at their
/// default. Throws nsa::InputError, std::invalid_argument or c10::Error ("nsa::...") for what is
/// wrong with input and options.
Evaluated evaluate(TensorFile in, const EvalOptions& options, const std::string& overriding = "");

}  // namespace suites::eval
