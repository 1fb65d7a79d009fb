#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>

#include "nsa/model/blocks/residual_norm.h"

namespace nsa {

/// Learns when a section of a model begins and ends to read its parameters, so that they need to be
/// there only then. Sections in the order of the forward pass: 0 the embedding, 1 .. num_layers the
/// layers, then the final norm with the head. A backward pass visits them in reverse order, without
/// the embedding, whose gradient does not read it.
class SectionObserver {
 public:
  virtual ~SectionObserver() = default;
  virtual void before_forward(size_t section) = 0;
  virtual void after_forward(size_t section) = 0;
  virtual void before_backward(size_t section) = 0;
  virtual void after_backward(size_t section) = 0;
};

/// f(in) as section `section`; without an observer that alone. While f runs, weights are transient
/// (nsa/ops/linear/transient_weights.h). `in` is empty for the embedding. The observer must live
/// as long as the graph.
Residual run_section(SectionObserver* observer, size_t section, const Residual& in,
                     const std::function<Residual(const Residual&)>& f);

}  // namespace nsa
