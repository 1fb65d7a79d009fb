#pragma once
#include <string>

#include "nsa/reference/tensor.h"

namespace suites {

/// How close two fp64 computations of one tensor must be.
struct Agreement {
  double relative = 1e-12;  ///< of the row's scale, the largest finite |expected| of the last axis
  double scale_floor = 0;   ///< smallest scale of a row
  double scale_of_tensor = 0;  ///< smallest scale of a row as a share of the tensor's largest value
};

/// What a tensor of this name (docs/semantics.md, Tensor files) is held to.
Agreement agreement_for(const std::string& name);

/// Empty when every element agrees: the same infinity, both NaN, or |actual - expected| <= relative
/// * scale. Else one line with the first differing place, both values and the number of them.
std::string first_difference(const nsa::reference::Tensor<double>& actual,
                             const nsa::reference::Tensor<double>& expected,
                             const Agreement& agreement = {});

/// Bit for bit.
std::string first_difference(const nsa::reference::Tensor<int32_t>& actual,
                             const nsa::reference::Tensor<int32_t>& expected);
std::string first_difference(const nsa::reference::Tensor<int64_t>& actual,
                             const nsa::reference::Tensor<int64_t>& expected);

}  // namespace suites
