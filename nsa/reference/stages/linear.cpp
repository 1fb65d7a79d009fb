#include "nsa/reference/stages/linear.h"

#include <cmath>

namespace nsa::reference {

std::vector<double> linear(const Tensor<double>& w, const Tensor<double>& b,
                           std::span<const double> x) {
  std::vector<double> y = b.values();
  // Four outputs side by side: one sum alone waits for each of its additions. Every sum still goes
  // up in i, so the bits are those of the plain loop.
  size_t o = 0;
  for (; o + 4 <= y.size(); o += 4) {
    const std::span<const double> w0 = w.row(o), w1 = w.row(o + 1), w2 = w.row(o + 2),
                                  w3 = w.row(o + 3);
    double y0 = y[o], y1 = y[o + 1], y2 = y[o + 2], y3 = y[o + 3];
    for (size_t i = 0; i < x.size(); ++i) {
      y0 += w0[i] * x[i];
      y1 += w1[i] * x[i];
      y2 += w2[i] * x[i];
      y3 += w3[i] * x[i];
    }
    y[o] = y0, y[o + 1] = y1, y[o + 2] = y2, y[o + 3] = y3;
  }
  for (; o < y.size(); ++o)
    for (size_t i = 0; i < x.size(); ++i) y[o] += w.row(o)[i] * x[i];
  return y;
}

std::vector<double> linear_backward(const Tensor<double>& w, std::span<const double> x,
                                    std::span<const double> d_y, Tensor<double>& d_w,
                                    Tensor<double>& d_b) {
  std::vector<double> d_x(x.size(), 0.0);
  for (int64_t o = 0; o < w.size(0); ++o) {
    const double d = d_y[static_cast<size_t>(o)];
    const std::span<const double> weight = w.row(o);
    const std::span<double> d_weight = d_w.row(o);
    d_b(o) += d;
    for (size_t i = 0; i < x.size(); ++i) {
      d_weight[i] += d * x[i];
      d_x[i] += d * weight[i];
    }
  }
  return d_x;
}

double sigmoid(double x) {
  if (x >= 0) return 1.0 / (1.0 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1.0 + e);
}

double silu(double x) { return x * sigmoid(x); }

double silu_derivative(double x) {
  const double s = sigmoid(x);
  return s * (1.0 + x * (1.0 - s));
}

}  // namespace nsa::reference
