#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "nsa/reference/config.h"
#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// base^(-2m/dk) for m = 0 .. dk/2-1.
std::vector<double> rope_frequencies(int64_t head_dim, double base);

/// Rotates one head vector x [dk] in place to `position`: with a = position * frequency[m] and
/// (i, j) = (2m, 2m+1), or (m, m + dk/2) for half-split pairs,
/// (x[i], x[j]) -> (x[i] cos a - x[j] sin a, x[i] sin a + x[j] cos a).
void rotate(std::span<double> x, int64_t position, std::span<const double> frequency,
            RopePairs pairs);

/// x [B,S,H,dk] -> the same shape, each head rotated to its token's position 0 .. S-1.
Tensor<double> rope(const Tensor<double>& x, double base, RopePairs pairs);

}  // namespace nsa::reference
