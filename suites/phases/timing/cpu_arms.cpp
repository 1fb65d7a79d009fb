#include "suites/phases/timing/cpu_arms.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "base/machine/host_memory.h"
#include "nsa/layer/call_memory.h"
#include "suites/conformance/checks/operator_checks.h"
#include "suites/conformance/convert.h"
#include "suites/faults/variants.h"

namespace suites {
namespace {

constexpr int64_t kCpuGradientTokens = 200;

double bytes_of(at::ScalarType type) { return static_cast<double>(c10::elementSize(type)); }

std::string fit_text(const std::string& arm, double bytes, double available) {
  return arm + " takes " + base::gib_text(bytes) + " with its inputs and " +
         base::gib_text(available) + " are available";
}

}  // namespace

DenseArm::DenseArm(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   at::ScalarType type, bool causal)
    : causal_(causal) {
  const int64_t narrower = q.size(3) - v.size(3);
  for (const at::Tensor* x : {&q, &k, &v}) {
    at::Tensor leaf = x->detach().to(type).transpose(1, 2);
    if (x == &v && narrower > 0) leaf = at::constant_pad_nd(leaf, {0, narrower}, 0);
    leaves_.push_back(leaf.contiguous().requires_grad_(true));
  }
}

at::Tensor DenseArm::forward() const {
  return at::scaled_dot_product_attention(leaves_[0], leaves_[1], leaves_[2], /*attn_mask=*/{},
                                          /*dropout_p=*/0, causal_,
                                          /*scale=*/std::nullopt, /*enable_gqa=*/true);
}

void DenseArm::backward(const at::Tensor& o, const at::Tensor& d_o) const {
  torch::autograd::grad({o}, leaves_, {d_o});
}

std::vector<at::ScalarType> dense_types(at::ScalarType type) {
  if (type == at::kFloat) return {type};
  return {type, at::kFloat};
}

Checks judge_cpu_gradients(const CaseConfig& config, at::ScalarType type, uint64_t seed,
                           const std::string& name) {
  CaseConfig small = config;  // every KV head does the same: one is judged
  small.num_heads = small.group_size();
  small.num_kv_heads = 1;
  small.tokens = std::min(small.tokens, kCpuGradientTokens);
  const OperatorCase drawn{.config = small, .type = type, .seed = seed, .name = name};
  for (const Variant& variant : variants())
    if (variant.name == "cpu_selection") return check_gradients(variant.make(), drawn);
  return {};
}

CpuArmBytes cpu_arm_bytes(CpuWork work, const CaseConfig& config, at::ScalarType type,
                          const std::vector<at::ScalarType>& dense) {
  const auto tokens = static_cast<double>(config.batch * config.tokens);
  const auto heads = static_cast<double>(config.num_heads);
  const auto kv = static_cast<double>(config.num_kv_heads);
  const auto dk = static_cast<double>(config.qk_head_dim);
  const auto dv = static_cast<double>(config.v_head_dim);
  const double pair = tokens * kv * (dk + dv), e = bytes_of(type);
  CpuArmBytes all;
  all.inputs = (tokens * heads * (dk + 3) + pair) * e;
  if (work == CpuWork::kDecode) {
    all.inputs += 2 * pair * e;  // each branch has K and V of its own
    all.ours = 2 * pair * e;     // the caches of the selected branch and of the blocks' sources
    for (const at::ScalarType dense_type : dense) all.inputs += pair * bytes_of(dense_type);
    return all;
  }
  all.ours = nsa::cpu_call_bytes(to_nsa(config),
                                 {.batch = config.batch,
                                  .tokens = config.tokens,
                                  .value_bytes = static_cast<int64_t>(c10::elementSize(type)),
                                  .gradient = true});
  const double wide = std::max(dk, dv), q = tokens * heads * wide, keys = tokens * kv * wide;
  for (const at::ScalarType dense_type : dense) {
    all.inputs += (q + 2 * keys) * bytes_of(dense_type);
    // The output, its gradient and that of q; K and V, or their gradients, for each query head.
    all.dense = std::max(all.dense, 5 * q * bytes_of(dense_type));
  }
  return all;
}

std::string cpu_arm_obstacle(CpuWork work, const CaseConfig& config, at::ScalarType type,
                             const std::vector<at::ScalarType>& dense) {
  const auto known = base::available_memory();
  if (!known) return "";
  const auto available = static_cast<double>(*known);
  const CpuArmBytes bytes = cpu_arm_bytes(work, config, type, dense);
  std::string text;
  if (!(bytes.inputs + bytes.ours <= available))
    text = fit_text("the operator", bytes.inputs + bytes.ours, available);
  if (!(bytes.inputs + bytes.dense <= available))
    text += (text.empty() ? "" : "; ") +
            fit_text("dense attention", bytes.inputs + bytes.dense, available);
  return text;
}

}  // namespace suites
