#include "nsa/ops/compressed/cmp_attn.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <string>
#include <tuple>

#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/attention/chunked_attention.h"
#include "nsa/ops/attention/cpu_attention.h"
#include "nsa/ops/attention/fused_interval.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"

namespace nsa {
namespace {

KeyMask visible_blocks(const ArgumentCheck& check, int64_t block_size, int64_t block_stride,
                       int64_t first_position) {
  check.at_least("block_size", block_size, 1);
  check.at_least("block_stride", block_stride, 1);
  check.at_least("first_position", first_position, 0);
  return {KeyMask::kVisibleBlocks, first_position, block_size, block_stride, {}};
}

constexpr const char* kNoLibraryMask =
    "the library's masks are causal by token, not by compressed block, and its fused calls return "
    "no probabilities, which the selection needs";

std::tuple<at::Tensor, at::Tensor, at::Tensor> cmp_attn_op(
    const at::Tensor& q, const at::Tensor& k_cmp, const at::Tensor& v_cmp, int64_t block_size,
    int64_t block_stride, int64_t first_position, bool want_group_probs, c10::string_view backend,
    bool strict, std::optional<double> given_scale) {
  const ArgumentCheck check("cmp_attn");
  check.qkv(q, "k_cmp", k_cmp, "v_cmp", v_cmp);
  const KeyMask mask = visible_blocks(check, block_size, block_stride, first_position);
  const double scale = check.scale(given_scale, q);
  const std::string requested(backend);
  const BranchBackend wanted = parse_branch_backend(requested);
  std::string reason = wanted == BranchBackend::kPlain ? "" : kNoLibraryMask;
  // Kernels return no probabilities: where they are wanted, operators compute them beside the
  // kernel.
  const auto with_probs = [&](const at::Tensor& out, const at::Tensor& lse) {
    return std::tuple{
        out, lse,
        want_group_probs ? group_probs(q, k_cmp, mask, scale) : at::empty({0}, lse.options())};
  };
  if (wanted == BranchBackend::kFused) {
    const KernelChoice kernel = choose_interval_kernel(q, k_cmp, v_cmp, mask);
    reason = kernel.obstacle;
    if (kernel.runs()) {
      record_backend("cmp_attn", requested, requested, kernel.detail, "", strict);
      FusedSelection fused =
          fused_interval_attention(q, k_cmp, v_cmp, mask, scale, kernel, "cmp_attn");
      return with_probs(fused.out, fused.lse);
    }
  }
  if (wanted == BranchBackend::kCpu) {
    reason = cpu_kernel_obstacle(q);
    if (reason.empty()) {
      record_backend("cmp_attn", requested, requested, cpu_kernel_detail(), "", strict);
      const CpuAttention r = cpu_attention(q, k_cmp, v_cmp, mask, scale, "cmp_attn");
      return with_probs(r.out, r.lse);
    }
  }
  record_backend("cmp_attn", requested, "plain", "", reason, strict);
  AttentionResult result = chunked_attention(q, k_cmp, v_cmp, mask, scale, want_group_probs);
  return {result.out, result.lse,
          want_group_probs ? result.group_probs : at::empty({0}, result.lse.options())};
}

at::Tensor cmp_probs_op(const at::Tensor& q, const at::Tensor& k_cmp, int64_t block_size,
                        int64_t block_stride, int64_t first_position, std::optional<double> scale) {
  const ArgumentCheck check("cmp_probs");
  check.qkv(q, "k_cmp", k_cmp, "k_cmp", k_cmp);
  const KeyMask mask = visible_blocks(check, block_size, block_stride, first_position);
  return attention_probs(q, k_cmp, mask, check.scale(scale, q));
}

}  // namespace

CmpAttnResult cmp_attn(const at::Tensor& q, const at::Tensor& k_cmp, const at::Tensor& v_cmp,
                       const NsaConfig& config, int64_t first_position,
                       const BranchOptions& options, bool want_group_probs) {
  static const auto op = find_operator<decltype(cmp_attn_op)>("nsa::cmp_attn");
  auto [out, lse, group_probs] =
      op.call(q, k_cmp, v_cmp, config.block_size, config.block_stride, first_position,
              want_group_probs, to_string(options.backend), options.strict, config.scale_cmp);
  return {out, lse, want_group_probs ? group_probs : at::Tensor()};
}

KernelChoice choose_select_kernel(const at::Tensor& q, const at::Tensor& k_cmp,
                                  const at::Tensor& v_cmp, const NsaConfig& config) {
  const KeyMask mask{KeyMask::kVisibleBlocks, 0, config.block_size, config.block_stride, {}};
  return choose_interval_kernel(q, k_cmp, v_cmp, mask, &config);
}

CmpSelectResult cmp_attn_select(const at::Tensor& q, const at::Tensor& k_cmp,
                                const at::Tensor& v_cmp, const NsaConfig& config,
                                const KernelChoice& kernel, int64_t first_position) {
  const ArgumentCheck check("cmp_attn_select");
  check.qkv(q, "k_cmp", k_cmp, "v_cmp", v_cmp);
  const KeyMask mask =
      visible_blocks(check, config.block_size, config.block_stride, first_position);
  if (!kernel.runs()) check.fail("backend", "applicable", "fused: " + kernel.obstacle);
  record_backend("cmp_attn", "fused", "fused", kernel.detail, "", /*strict=*/false);
  FusedSelection r = fused_interval_attention(
      q, k_cmp, v_cmp, mask, check.scale(config.scale_cmp, q), kernel, "cmp_attn", &config);
  return {r.out, r.lse, r.block_idx, r.ranges};
}

CmpSelectResult cmp_attn_select(const at::Tensor& q, const at::Tensor& k_cmp,
                                const at::Tensor& v_cmp, const NsaConfig& config,
                                int64_t first_position) {
  const ArgumentCheck check("cmp_attn_select");
  check.qkv(q, "k_cmp", k_cmp, "v_cmp", v_cmp);
  visible_blocks(check, config.block_size, config.block_stride, first_position);
  const KernelChoice kernel = choose_select_kernel(q, k_cmp, v_cmp, config);
  return cmp_attn_select(q, k_cmp, v_cmp, config, kernel, first_position);
}

CmpSelectResult cmp_attn_select_cpu(const at::Tensor& q, const at::Tensor& k_cmp,
                                    const at::Tensor& v_cmp, const NsaConfig& config,
                                    int64_t first_position) {
  const ArgumentCheck check("cmp_attn_select");
  check.qkv(q, "k_cmp", k_cmp, "v_cmp", v_cmp);
  const KeyMask mask =
      visible_blocks(check, config.block_size, config.block_stride, first_position);
  const std::string obstacle = cpu_kernel_obstacle(q);
  if (!obstacle.empty()) check.fail("backend", "applicable", "cpu: " + obstacle);
  record_backend("cmp_attn", "cpu", "cpu", cpu_kernel_detail(), "", /*strict=*/false);
  const CpuAttention r =
      cpu_attention(q, k_cmp, v_cmp, mask, check.scale(config.scale_cmp, q), "cmp_attn", &config);
  return {r.out, r.lse, r.block_idx, r.ranges};
}

at::Tensor cmp_probs(const at::Tensor& q, const at::Tensor& k_cmp, const NsaConfig& config,
                     int64_t first_position) {
  static const auto op = find_operator<decltype(cmp_probs_op)>("nsa::cmp_probs");
  return op.call(q, k_cmp, config.block_size, config.block_stride, first_position,
                 config.scale_cmp);
}

}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def(
      "cmp_attn(Tensor q, Tensor k_cmp, Tensor v_cmp, int block_size, int block_stride, "
      "int first_position, bool want_group_probs, str backend, bool strict, "
      "float? scale=None) "
      "-> (Tensor out, Tensor lse, Tensor group_probs)",
      TORCH_FN(nsa::cmp_attn_op));
  m.def(
      "cmp_probs(Tensor q, Tensor k_cmp, int block_size, int block_stride, int first_position, "
      "float? scale=None) -> Tensor",
      TORCH_FN(nsa::cmp_probs_op));
}
