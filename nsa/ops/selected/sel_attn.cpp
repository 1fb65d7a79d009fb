#include "nsa/ops/selected/sel_attn.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <string>
#include <tuple>

#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/attention/cpu_attention.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/selected/backends.h"

namespace nsa {
namespace {

SelAttnResult sel_attn_cpu(const SelAttnArgs& args, bool strict) {
  const std::string obstacle = cpu_kernel_obstacle(args.q);
  if (!obstacle.empty()) {
    record_backend("sel_attn", "cpu", "gather", "", obstacle, strict);
    return row_attention(args, gather_method());
  }
  record_backend("sel_attn", "cpu", "cpu", cpu_kernel_detail(), "", strict);
  const KeyMask mask{KeyMask::kRanges, args.first_position, 0, 1, args.ranges};
  const CpuAttention r = cpu_attention(args.q, args.k, args.v, mask, args.scale, "sel_attn");
  return {r.out, r.lse};
}

SelAttnResult run_backend(SelBackend backend, const SelAttnArgs& args, bool safe_pack,
                          bool strict) {
  switch (backend) {
    case SelBackend::kGather:
      return sel_attn_gather(args);
    case SelBackend::kPacked:
      return sel_attn_packed(args, safe_pack, strict);
    case SelBackend::kVarlen:
      return sel_attn_varlen(args);
    case SelBackend::kMasked:
      return sel_attn_masked(args);
    case SelBackend::kFused:
      return sel_attn_fused(args, strict);
    case SelBackend::kCpu:
      return sel_attn_cpu(args, strict);
  }
  TORCH_INTERNAL_ASSERT(false, "backend without code");
}

std::tuple<at::Tensor, at::Tensor> sel_attn_op(const at::Tensor& q, const at::Tensor& k,
                                               const at::Tensor& v, const at::Tensor& ranges,
                                               int64_t first_position, c10::string_view backend,
                                               bool safe_pack, bool strict, int64_t block_size,
                                               std::optional<double> given_scale) {
  const ArgumentCheck check("sel_attn");
  check.qkv(q, "k", k, "v", v);
  check.sizes("ranges", ranges, {q.size(0), q.size(1), k.size(2), -1, 2}, "[B, S, Hkv, K, 2]");
  check.dtype("ranges", ranges, at::kInt);
  check.same_device("ranges", ranges, "q", q);
  check.at_least("first_position", first_position, 0);
  check.at_least("N", k.size(1), first_position + q.size(1));
  check.at_least("block_size", block_size, 0);
  const double scale = check.scale(given_scale, q);
  auto [out, lse] =
      run_backend(parse_sel_backend(std::string(backend)),
                  {q, k, v, ranges, first_position, scale, block_size}, safe_pack, strict);
  return {out, lse};
}

}  // namespace

std::pair<at::Tensor, at::Tensor> sel_attn(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const at::Tensor& ranges,
                                           int64_t first_position, const SelAttnOptions& options,
                                           std::optional<double> scale) {
  static const auto op = find_operator<decltype(sel_attn_op)>("nsa::sel_attn");
  auto [out, lse] = op.call(q, k, v, ranges, first_position, to_string(options.backend),
                            options.safe_pack, options.strict, options.block_size, scale);
  return {out, lse};
}

}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def(
      "sel_attn(Tensor q, Tensor k, Tensor v, Tensor ranges, int first_position, str backend, "
      "bool safe_pack, bool strict, int block_size, float? scale=None) "
      "-> (Tensor out, Tensor lse)",
      TORCH_FN(nsa::sel_attn_op));
}
