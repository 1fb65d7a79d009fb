#include "nsa/ops/linear/transient_weights.h"

#include <utility>

namespace nsa {
namespace {

thread_local bool transient = false;  // NOLINT: one flag a thread is the purpose

}  // namespace

TransientWeights::TransientWeights() : outer_(std::exchange(transient, true)) {}

TransientWeights::~TransientWeights() { transient = outer_; }

bool TransientWeights::here() { return transient; }

std::vector<at::Tensor> kept_rows(const at::Tensor& rows, at::TensorList weights) {
  return transient ? weights.vec() : std::vector<at::Tensor>{rows};
}

}  // namespace nsa
