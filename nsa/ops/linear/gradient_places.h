#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <mutex>
#include <unordered_map>
#include <vector>

namespace nsa {

/// Memory where gradients of weights are wanted, as in buckets that several ranks sum: products
/// make them there, which saves a copy each. A place is filled once a pass and only while its
/// weight has no gradient: what comes later is added up elsewhere, as without places.
class GradientPlaces : public torch::CustomClassHolder {
 public:
  /// Wants the gradient of `weight` [out, in] in `place`, contiguous and of the same sizes.
  /// Throws c10::Error where it is not.
  void want(const at::Tensor& weight, const at::Tensor& place);
  bool empty() const;
  /// Before a backward pass: all places are free again.
  void free_all();

  /// Takes the places of `weights`, identified by their addresses: all or, where one is unknown,
  /// taken or its weight has a gradient, none.
  std::vector<at::Tensor> take(const std::vector<const void*>& weights);

  /// While it lives, products of this thread note these places for their backward pass.
  class Scope {
   public:
    explicit Scope(c10::intrusive_ptr<GradientPlaces> places);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    c10::intrusive_ptr<GradientPlaces> outer_;
  };

 private:
  struct Place {
    at::Tensor weight, memory;
    bool taken;
  };
  mutable std::mutex mutex_;  ///< autograd has threads of its own
  std::unordered_map<const void*, Place> places_;
};

/// For a forward pass to save: the places of `weights` in the scope of this thread, if any.
c10::IValue noted_places(at::TensorList weights);

/// d_out^T x in `type`, divided into the gradients of weights of `heights` rows, in the places
/// that noted_places() gave where they are free. d_out: [rows, sum of heights], x: [rows, in], of
/// one type; wider than it, `type` is fp32 on CUDA, and nothing is rounded in between.
std::vector<at::Tensor> weight_gradients(const at::Tensor& d_out, const at::Tensor& x,
                                         at::ScalarType type, const std::vector<int64_t>& heights,
                                         const c10::IValue& noted);

}  // namespace nsa
