#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "nsa/ops/linear/gradient_places.h"

namespace nsa::train {

/// Gradients side by side in flat memory, a bucket each stretch that is sent as one. Products make
/// the gradients of matrices there (places()); others are copied to their places as they come.
class GradientBuckets {
 public:
  struct Bucket {
    at::Tensor whole;  ///< [elements]
    size_t index;
    bool last;
  };
  /// Called on the thread of a backward pass.
  using OnReady = std::function<void(const Bucket&)>;

  /// `parameters`: of one type on one device, in the order in which a backward pass makes their
  /// gradients; in another order buckets are ready later. From the last parameter on a bucket is
  /// closed by the one that takes it to `cap_bytes`, the bucket that is sent last by the one that
  /// takes it to `last_bytes`. Throws c10::Error for parameters of several types or devices.
  GradientBuckets(const std::vector<at::Tensor>& parameters, int64_t cap_bytes, int64_t last_bytes,
                  OnReady on_ready);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// For the forward pass, whose products note where their gradients are wanted.
  c10::intrusive_ptr<GradientPlaces> places() const { return places_; }
  /// Before a micro-batch. Gradients of a step add up; in its `last` one a bucket is ready, and
  /// handed on in order, as soon as all of its gradients have come.
  void begin_pass(bool first, bool last);
  /// After it. Throws c10::Error that names the first parameter without a gradient in it.
  void end_pass();

 private:
  struct Place {
    at::Tensor parameter, memory;
    size_t bucket;
    bool filled = false;  ///< in this pass
  };
  void add_bucket(const std::vector<at::Tensor>& parameters);
  void watch(size_t i);
  void arrived(size_t i);

  OnReady on_ready_;
  std::vector<Place> all_;
  std::vector<at::Tensor> buckets_;
  std::vector<size_t> missing_;  ///< parameters of each bucket without a gradient in this pass
  size_t next_ = 0;              ///< bucket that is handed on next
  bool in_pass_ = false, sends_ = false;
  c10::intrusive_ptr<GradientPlaces> places_ = c10::make_intrusive<GradientPlaces>();
  /// Gradient accumulators with a hook each; they would not outlive a pass otherwise.
  std::vector<std::pair<std::shared_ptr<torch::autograd::Node>, uintptr_t>> watched_;
};

}  // namespace nsa::train
