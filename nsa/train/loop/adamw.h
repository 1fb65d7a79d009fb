#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace nsa::train {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  ///< decoupled; of parameters with two or more axes only
  double clip_norm = 1.0;     ///< gradients are scaled down to this global L2 norm; 0: never
  /// Where gradients are sharded: the norm of all from that of those here, scalars on the device.
  std::function<at::Tensor(const at::Tensor& norm_here)> norm_of_all = {};
};

/// AdamW over LibTorch's fused kernel (at::_fused_adamw_), one call for all matrices and one for
/// all vectors:
///   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p = p - lr (wd p + (m / (1-b1^t)) / (sqrt(v /
///   (1-b2^t)) + eps))
/// Nothing waits for the device: clipping and the decision to skip happen there. On CUDA the kernel
/// reads the learning rate from the device, in fp32, so that an update can be captured in a graph.
class AdamW {
 public:
  /// Parameters of one floating type on one device, all of which receive gradients. `owned`, one
  /// entry a parameter: false leaves moments and update to another rank; empty: all are owned. The
  /// gradient norm is over all parameters either way. `matrices`, one entry a parameter: whether
  /// its weights decay; empty: those with two or more axes.
  AdamW(const std::vector<at::Tensor>& parameters, const AdamWOptions& options,
        const std::vector<bool>& owned = {}, const std::vector<bool>& matrices = {});

  /// One update from the parameters' gradients; gradients are cleared. Returns their global L2 norm
  /// before clipping, a scalar on the device. If it is not finite the parameters and moments stay
  /// as they were. Throws c10::Error naming the first parameter without gradient by its index.
  at::Tensor step(double learning_rate);

  /// The halves of `step`: the rate of the next updates, and one update, which is the same work of
  /// the device every time. Where `idle` (a bool scalar on the device; undefined: false) holds,
  /// parameters and moments stay as they were, too.
  void set_learning_rate(double learning_rate);
  at::Tensor update(const at::Tensor& idle = {});

  /// Learning rate that was set last.
  double applied_learning_rate() const { return applied_learning_rate_; }

  /// What is updated: parameter `i`, or the part of it that this rank keeps.
  const at::Tensor& parameter(size_t i) const { return parameters_[i]; }

  /// First and second moment of parameter `i`, by reference; undefined where it is not owned.
  struct Moments {
    at::Tensor first, second;
  };
  const Moments& moments(size_t i) const { return moments_[i]; }
  /// fp32 scalar on the device: updates that were not skipped.
  const at::Tensor& update_count() const { return update_count_; }

 private:
  /// Parameters with one weight decay; the lists of tensors hold the owned ones.
  struct Group {
    double weight_decay = 0;
    std::vector<size_t> members;
    std::vector<at::Tensor> parameters, first_moments, second_moments, gradients;
  };
  void add(Group& group, size_t i, bool owned);
  std::vector<at::Tensor> take_gradients();
  at::Tensor gradient_norm(const std::vector<at::Tensor>& gradients) const;

  AdamWOptions options_;
  std::vector<at::Tensor> parameters_;
  std::vector<Moments> moments_;
  std::vector<Group> groups_;
  at::Tensor update_count_, learning_rate_;
  double applied_learning_rate_ = 0;
};

}  // namespace nsa::train
