#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// base^(-2m/dk) for m = 0 .. dk/2-1.
std::vector<double> rope_frequencies(int64_t head_dim, double base);

/// Rotates one head vector x [dk] in place to `position`: with a = position * frequency[m],
/// (x[2m], x[2m+1]) -> (x[2m] cos a - x[2m+1] sin a, x[2m] sin a + x[2m+1] cos a).
void rotate(std::span<double> x, int64_t position, std::span<const double> frequency);

/// x [B,S,H,dk] -> the same shape, each head rotated to its token's position 0 .. S-1.
Tensor<double> rope(const Tensor<double>& x, double base);

}  // namespace nsa::reference
