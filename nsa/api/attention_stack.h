#pragma once
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <bitset>
#include <vector>

#include "nsa/api/attention_call.h"

namespace nsa {

/// The arguments of a registered operator in the order of its schema, to and from a call.
struct OperatorArguments {
  AttentionCall call;
  bool keep = false;  ///< of a forward operator: results are kept for the backward one
  std::vector<at::Tensor> kept = {};             ///< of a backward operator: these results, or none
  at::Tensor d_o = {};                           ///< of the backward operators
  std::bitset<kCallTensors.size()> wanted = {};  ///< gradients that they are to compute

  /// Takes the arguments off the stack. Head counts and dims of the configuration are those of the
  /// tensors.
  static OperatorArguments pop(const c10::FunctionSchema& schema, torch::jit::Stack& stack);
  void push(const c10::FunctionSchema& schema, torch::jit::Stack& stack) const;
};

}  // namespace nsa
