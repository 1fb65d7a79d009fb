#include "nsa/ops/window/win_attn.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <limits>
#include <string>
#include <tuple>

#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/attention/chunked_attention.h"
#include "nsa/ops/attention/cpu_attention.h"
#include "nsa/ops/attention/fused_interval.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/window/library_window.h"

namespace nsa {
namespace {

/// The branch without keys: a node of its own, so that k and v have gradients of 0 like those of
/// any row without keys, whatever they hold.
struct WindowOff : torch::autograd::Function<WindowOff> {
  using Tensors = torch::autograd::variable_list;

  static Tensors forward(torch::autograd::AutogradContext* ctx, const at::Tensor& q,
                         const at::Tensor& k, const at::Tensor& v) {
    ctx->save_for_backward({q, k, v});
    const at::Tensor lse =
        at::full({q.size(0), q.size(1), q.size(2)}, -std::numeric_limits<double>::infinity(),
                 q.options().dtype(accumulation_type(q.scalar_type())));
    ctx->mark_non_differentiable({lse});
    return {at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options()), lse};
  }
  static Tensors backward(torch::autograd::AutogradContext* ctx, const Tensors&) {
    Tensors zeros;
    for (const at::Tensor& x : ctx->get_saved_variables()) zeros.push_back(at::zeros_like(x));
    return zeros;
  }
};

std::tuple<at::Tensor, at::Tensor> win_attn_op(const at::Tensor& q, const at::Tensor& k,
                                               const at::Tensor& v, int64_t window,
                                               int64_t first_position, c10::string_view backend,
                                               bool strict, std::optional<double> given_scale) {
  const ArgumentCheck check("win_attn");
  check.qkv(q, "k", k, "v", v);
  check.at_least("window", window, 0);
  check.at_least("first_position", first_position, 0);
  check.at_least("N", k.size(1), first_position + q.size(1));
  const double scale = check.scale(given_scale, q);
  if (window == 0) {
    record_backend("win_attn", "off", "off", "", "", strict);
    const torch::autograd::variable_list off = WindowOff::apply(q, k, v);
    return {off[0], off[1]};
  }
  const WindowArgs args{q, k, v, window, first_position, scale};
  const std::string requested(backend);
  const BranchBackend wanted = parse_branch_backend(requested);
  const KeyMask mask{KeyMask::kWindow, first_position, window, 1, {}};
  std::string reason;
  if (wanted == BranchBackend::kFused) {
    const KernelChoice kernel = choose_interval_kernel(q, k, v, mask);
    if (kernel.runs()) {
      record_backend("win_attn", requested, requested, kernel.detail, "", strict);
      FusedSelection result = fused_interval_attention(q, k, v, mask, scale, kernel, "win_attn");
      return {result.out, result.lse};
    }
    reason = kernel.obstacle;
  } else if (wanted == BranchBackend::kCpu) {
    reason = cpu_kernel_obstacle(q);
    if (reason.empty()) {
      record_backend("win_attn", requested, requested, cpu_kernel_detail(), "", strict);
      const CpuAttention result = cpu_attention(q, k, v, mask, scale, "win_attn");
      return {result.out, result.lse};
    }
  } else if (wanted != BranchBackend::kPlain) {
    reason = library_window_obstacle(args, wanted);
    if (reason.empty()) {
      record_backend("win_attn", requested, requested, "", "", strict);
      auto [out, lse] = library_window(args, wanted);
      return {out, lse};
    }
  }
  record_backend("win_attn", requested, "plain", "", reason, strict && q.numel() > 0);
  AttentionResult result = chunked_attention(q, k, v, mask, scale);
  return {result.out, result.lse};
}

}  // namespace

std::pair<at::Tensor, at::Tensor> win_attn(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, int64_t window,
                                           int64_t first_position, const BranchOptions& options,
                                           std::optional<double> scale) {
  static const auto op = find_operator<decltype(win_attn_op)>("nsa::win_attn");
  auto [out, lse] =
      op.call(q, k, v, window, first_position, to_string(options.backend), options.strict, scale);
  return {out, lse};
}

}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def(
      "win_attn(Tensor q, Tensor k, Tensor v, int window, int first_position, str backend, "
      "bool strict, float? scale=None) "
      "-> (Tensor out, Tensor lse)",
      TORCH_FN(nsa::win_attn_op));
}
