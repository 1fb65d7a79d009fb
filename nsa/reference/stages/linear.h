#pragma once
#include <span>
#include <vector>

#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// y[o] = b[o] + sum over i of w[o,i] x[i]; w [out,in], b [out], x [in] (LibTorch's Linear layout).
std::vector<double> linear(const Tensor<double>& w, const Tensor<double>& b,
                           std::span<const double> x);

/// Adds d_y x^T to d_w and d_y to d_b; returns d_x = w^T d_y.
std::vector<double> linear_backward(const Tensor<double>& w, std::span<const double> x,
                                    std::span<const double> d_y, Tensor<double>& d_w,
                                    Tensor<double>& d_b);

/// 1 / (1 + exp(-x)), without overflow for either sign.
double sigmoid(double x);

/// x * sigmoid(x), and its derivative.
double silu(double x);
double silu_derivative(double x);

}  // namespace nsa::reference
