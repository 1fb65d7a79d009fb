// The window branch beside a problem of the selected one: its row statistics, as a gated sum leaves
// them, and its gradients by plain fp64 loops.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "nsa/kernels/tests/selected/selected_host_problem.h"

namespace nsa::kernels::emulator {

class WindowBranch {
 public:
  /// Of the first `queries` of each sequence.
  WindowBranch(const SelectedProblem& of, int window, int queries)
      : x_(of), window_(window), lse_(of.lse.size()), delta_(of.lse.size()), gradients_{} {
    gradients_ = {std::vector<double>(q_.size()), std::vector<double>(k_.size()),
                  std::vector<double>(v_.size())};
    x_.for_rows([&](int b, int t, int head, int kv, const std::vector<int>&) {
      if (t < queries) add_row(b, t, head, kv);
    });
  }
  /// It refers to this object.
  JoinedWindow joined() { return {window_, {lse_.data(), delta_.data(), nullptr}}; }
  /// Of both branches.
  SelectedGradients add_to(SelectedGradients d) const {
    const auto add = [](std::vector<double>& to, const std::vector<double>& more) {
      for (size_t i = 0; i < to.size(); ++i) to[i] += more[i];
    };
    add(d.q, gradients_.q), add(d.k, gradients_.k), add(d.v, gradients_.v);
    return d;
  }

 private:
  void add_row(int b, int t, int head, int kv) {
    const SelectedCase& c = x_.c;
    const size_t row = x_.row_of(b, t, head);
    const int end = c.first_position + t + 1, begin = std::max(0, end - window_);
    const double *const q = &q_[row * c.dk], *const d_out = &d_out_[row * c.dv];
    const double gate = .2 + .1 * static_cast<double>(row % 8);
    const auto key_row = [&](int key) { return x_.key_row_of(b, key, kv); };
    std::vector<double> p, d_p;
    double sum = 0, delta = 0;
    for (int key = begin; key < end; ++key) {
      p.push_back(std::exp(x_.dot(q, &k_[key_row(key) * c.dk], c.dk) * x_.scale));
      d_p.push_back(x_.dot(d_out, &v_[key_row(key) * c.dv], c.dv));
      sum += p.back();
    }
    for (size_t i = 0; i < p.size(); ++i) delta += p[i] / sum * d_p[i];
    const size_t at = ((size_t(b) * c.kv_heads + kv) * c.s + t) * c.group + head % c.group;
    lse_[at] = static_cast<float>(std::log2(sum) - std::log2(gate));
    delta_[at] = static_cast<float>(delta);
    for (int key = begin; key < end; ++key) {
      const double probability = p[key - begin] / sum * gate,
                   d_score = x_.scale * probability * (d_p[key - begin] - delta);
      const size_t of_key = key_row(key);
      x_.add_scaled(&gradients_.q[row * c.dk], d_score, &k_[of_key * c.dk], c.dk);
      x_.add_scaled(&gradients_.k[of_key * c.dk], d_score, q, c.dk);
      x_.add_scaled(&gradients_.v[of_key * c.dv], probability, d_out, c.dv);
    }
  }

  const SelectedProblem& x_;
  int window_;
  std::vector<double> q_ = x_.q.values(), k_ = x_.k.values(), v_ = x_.v.values(),
                      d_out_ = x_.d_out.values();
  std::vector<float> lse_, delta_;  // [B, Hkv, S, G]
  SelectedGradients gradients_;
};

}  // namespace nsa::kernels::emulator
