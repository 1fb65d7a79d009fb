#pragma once
#include <ATen/core/Tensor.h>

namespace nsa::train {

/// The memory of a tensor, given back and taken again while the tensor and its views stay: they
/// share one storage, whose pointer changes. What they hold between the two is undefined, and
/// nothing may read it.
class TransientStorage {
 public:
  /// `whole` covers its storage; views of it may exist. Its memory is there.
  explicit TransientStorage(at::Tensor whole);

  const at::Tensor& whole() const { return whole_; }
  bool is_there() const { return there_; }
  /// New memory, with undefined content; where it is there, nothing happens.
  void take();
  /// Gives the memory back, for the next allocation on the current stream.
  void give_back();

 private:
  at::Tensor whole_;
  bool there_ = true;
};

}  // namespace nsa::train
