#pragma once
#include <string>
#include <vector>

#include "suites/compare/generators.h"
#include "suites/conformance/case_config.h"
#include "suites/conformance/dense_formulation.h"

namespace suites {

/// Inputs of one case, seeded: q and K by `kind` (V too for small integers); gates and phi weights
/// are normal (weights scaled by their fan-in so that stages stay near 1), for kSmallInteger small
/// integers. Gates of GateKind::kNone lie in 0..1. Made on the CPU, rounded to `type`, then moved
/// to `device`.
DenseInputs make_inputs(const CaseConfig& config, DataKind kind, uint64_t seed, at::ScalarType type,
                        at::Device device);

/// One case of operator conformance.
struct OperatorCase {
  CaseConfig config;
  DataKind kind = DataKind::kNormal;
  at::ScalarType type = at::ScalarType::Float;
  at::Device device = at::Device(at::kCPU);
  uint64_t seed = 0;
  Layout layout = Layout::kContiguous;  ///< of the token-wise inputs
  std::string name;                     ///< stands at the end of every check id
};

/// The layouts alternate over a sample; two of five cases are contiguous.
Layout layout_of(int64_t index);

/// The inputs of a case, in its memory layout.
DenseInputs inputs_of(const OperatorCase& one);

/// q, K and V of every branch and the gates: what has a token axis.
std::vector<at::Tensor*> token_inputs(DenseInputs& inputs);

/// Token-wise inputs in a layout; differentiable.
DenseInputs lay_out(const DenseInputs& inputs, Layout layout);

/// Every input with its name in fixed order, undefined ones left out: for gradients.
std::vector<std::pair<std::string, at::Tensor*>> named_inputs(DenseInputs& inputs);

/// The same values as leaves that require gradients.
DenseInputs as_leaves(const DenseInputs& inputs);

/// Largest Euclidean norm of a last-dimension row; 0 for an empty tensor.
double largest_norm(const at::Tensor& x);

}  // namespace suites
