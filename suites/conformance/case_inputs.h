#pragma once
#include <string>
#include <vector>

#include "suites/compare/generators.h"
#include "suites/conformance/case_config.h"
#include "suites/conformance/dense_formulation.h"

namespace suites {

/// Inputs of one case, seeded: q, K and V by `kind`; gates and phi weights are normal (weights
/// scaled by their fan-in so that stages stay near 1), for kSmallInteger small integers. Gates of
/// GateKind::kNone lie in 0..1. Made on the CPU, rounded to `type`, then moved to `device`.
DenseInputs make_inputs(const CaseConfig& config, DataKind kind, uint64_t seed, at::ScalarType type,
                        at::Device device);

/// Every input with its name in fixed order, undefined ones left out: for gradients.
std::vector<std::pair<std::string, at::Tensor*>> named_inputs(DenseInputs& inputs);

/// The same values as leaves that require gradients.
DenseInputs as_leaves(const DenseInputs& inputs);

/// Largest Euclidean norm of a last-dimension row; 0 for an empty tensor.
double largest_norm(const at::Tensor& x);

}  // namespace suites
