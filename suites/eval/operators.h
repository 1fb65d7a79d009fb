#pragma once
#include <string>
#include <vector>

#include "suites/eval/evaluation.h"

namespace suites::eval {

/// One value of --op.
struct Operator {
  std::string name;
  std::vector<std::string> carriers;  ///< the first of these in the file gives B and S, or T
  bool differentiable;
  void (*run)(Evaluation& run);
};

/// The operator of a name, or of a kind of file where the name is "". Throws nsa::InputError.
const Operator& find_operator(const std::string& name, const std::string& kind);

/// --op layer, in any mode.
void run_layer(Evaluation& run);

}  // namespace suites::eval
