#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "suites/conformance/case_config.h"
#include "suites/conformance/checks/check.h"

/// Attention on a CPU: ours by the CPU kernels, and LibTorch's dense attention on the same tensors.
namespace suites {

/// Dense attention of LibTorch on q [B, S, Hq, dk], K and V [B, N, Hkv, dk or dv], copied to
/// `type`; causal, or over all keys. Its fast kernel needs dk = dv, so narrower values are padded
/// with zeros beforehand.
class DenseArm {
 public:
  DenseArm(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::ScalarType type,
           bool causal = true);

  /// [B, Hq, S, dk]
  at::Tensor forward() const;
  /// Gradients of q, K and V, which are dropped.
  void backward(const at::Tensor& o, const at::Tensor& d_o) const;

 private:
  bool causal_;
  std::vector<at::Tensor> leaves_;
};

/// The dense attentions that a call in `type` is compared with: in its own type, and in fp32, which
/// is faster than bf16 on some processors.
std::vector<at::ScalarType> dense_types(at::ScalarType type);

/// Gradients of the CPU kernels against the oracle, at a length at which whole tensors can be
/// judged.
Checks judge_cpu_gradients(const CaseConfig& config, at::ScalarType type, uint64_t seed,
                           const std::string& name);

/// A forward and a backward call, or decode steps behind `tokens` of context.
enum class CpuWork { kTraining, kDecode };

/// Bytes of `work` in `type` and of dense attention beside it in `dense`: lower bounds.
struct CpuArmBytes {
  double inputs = 0;           ///< of all arms
  double ours = 0, dense = 0;  ///< beyond them, while each runs
};
CpuArmBytes cpu_arm_bytes(CpuWork work, const CaseConfig& config, at::ScalarType type,
                          const std::vector<at::ScalarType>& dense);

/// Why it cannot be run on this machine, naming the arm, what it takes and what is available;
/// empty where it can.
std::string cpu_arm_obstacle(CpuWork work, const CaseConfig& config, at::ScalarType type,
                             const std::vector<at::ScalarType>& dense);

}  // namespace suites
