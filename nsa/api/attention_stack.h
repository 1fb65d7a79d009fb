#pragma once
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <bitset>
#include <optional>
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

  /// AttentionCall::unpack; what is wanted of the projection is wanted of q, k and v.
  void unpack();
  /// Places in kCallTensors of what the backward operator returns gradients of, in their order: of
  /// a call with one projection that is the first, then the gates.
  std::vector<size_t> gradient_places() const;
};

/// Where arguments stand in the schema of a forward operator.
struct ForwardPlaces {
  std::vector<size_t> tensors;  ///< of the call, differentiable; in the order of its gradients
  size_t backend = 0, gate = 0, keep = 0;
  std::optional<size_t> cu_seqlens;
};
const ForwardPlaces& forward_places(const c10::FunctionSchema& schema);

}  // namespace nsa
