#include "nsa/ops/window/library_window.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/attention/chunked_attention.h"
#include "nsa/ops/attention/library_attention.h"
#include "nsa/ops/common/operator_call.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The keys that the queries can reach, so that the last query meets the last key.
struct Reach {
  explicit Reach(const WindowArgs& args)
      : begin(std::max<int64_t>(0, args.first_position - args.window + 1)),
        count(args.first_position + args.q.size(1) - begin) {}
  at::Tensor cut(const at::Tensor& x) const { return x.narrow(1, begin, count); }
  int64_t begin, count;
};

KeyMask mask_of(const WindowedQueries& x) {
  return {KeyMask::kWindow, x.k.size(1) - x.q.size(1), x.window, 1, {}};
}

struct FlashWindow : torch::autograd::Function<FlashWindow> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, int64_t window, double scale) {
    const auto [out, lse] = flash_window_forward({q, k, v, window, scale});
    ctx->save_for_backward({q, k, v, out, lse});
    ctx->saved_data["window"] = window;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["record"] = c10::IValue::make_capsule(current_record());
    ctx->set_materialize_grads(false);
    return {out, lse};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::win_attn: double backward is not supported; detach the gradient first");
    const NvtxRange range("nsa.win_attn.backward");
    const variable_list saved = ctx->get_saved_variables();
    const WindowedQueries x{saved[0], saved[1], saved[2], ctx->saved_data["window"].toInt(),
                            ctx->saved_data["scale"].toDouble()};
    const RunRecordScope scope(
        c10::static_intrusive_pointer_cast<RunRecord>(ctx->saved_data["record"].toCapsule()));
    if (!grads[1].defined()) {
      const LibraryGradients g = flash_window_backward(x, grads[0], saved[3], saved[4]);
      return {g.q, g.k, g.v, {}, {}};
    }
    record_backend("win_attn.backward", "flash", "plain", "",
                   "the library takes no gradient of lse",
                   /*strict=*/false);
    const AttentionGradients g =
        chunked_attention_backward(x.q, x.k, x.v, mask_of(x), x.scale, grads[0], grads[1]);
    return {g.q, g.k, g.v, {}, {}};
  }
};

/// Rows [B, S, Hq] whose query or attended pairs hold a non-finite value.
at::Tensor touched_rows(const WindowedQueries& x) {
  const auto bad = [](const at::Tensor& values) { return values.isfinite().all(-1).logical_not(); };
  const at::Tensor bad_pairs = bad(x.k).logical_or(bad(x.v)).cumsum(1);
  const at::Tensor before = at::constant_pad_nd(bad_pairs, {0, 0, 1, 0});  // [B, N + 1, Hkv]
  const int64_t num_keys = x.k.size(1), group = x.q.size(2) / x.k.size(2);
  const at::Tensor end =
      at::arange(num_keys - x.q.size(1) + 1, num_keys + 1, before.options().dtype(at::kLong));
  const at::Tensor begin = end.sub(x.window).clamp_min_(0);
  const at::Tensor in_window = before.index_select(1, end).gt(before.index_select(1, begin));
  return in_window.repeat_interleave(group, 2).logical_or_(bad(x.q));
}

/// Flash on values made finite; the rows that a non-finite value touches are computed plainly, so
/// that every other row keeps its bits.
std::pair<at::Tensor, at::Tensor> flash_window(const WindowedQueries& x) {
  const auto flash = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return FlashWindow::apply(q, k, v, x.window, x.scale);
  };
  if (all_finite(x.q, x.k, x.v)) {
    const variable_list result = flash(x.q, x.k, x.v);
    return {result[0], result[1]};
  }
  record_backend("win_attn.non_finite_rows", "flash", "plain", "",
                 "it multiplies masked places by 0", /*strict=*/false);
  const auto finite = [](const at::Tensor& values) {
    return values.masked_fill(values.isfinite().logical_not(), 0.0);
  };
  const at::Tensor touched = touched_rows(x);
  const variable_list rest = flash(finite(x.q), finite(x.k), finite(x.v));
  const AttentionResult plain = chunked_attention(x.q, x.k, x.v, mask_of(x), x.scale);
  return {at::where(touched.unsqueeze(-1), plain.out, rest[0]),
          at::where(touched, plain.lse, rest[1])};
}

}  // namespace

std::string library_window_obstacle(const WindowArgs& args, BranchBackend backend) {
  const Reach reach(args);
  const at::Tensor k = reach.cut(args.k), v = reach.cut(args.v);
  if (backend == BranchBackend::kFlash) return flash_obstacle(args.q, k, v);
  if (args.first_position > 0 || args.window < args.q.size(1)) {
    return "its mask is causal without a window";
  }
  if (needs_gradient({args.q, args.k, args.v})) return "it is used without a gradient only";
  return cudnn_obstacle(args.q, k, v);
}

std::pair<at::Tensor, at::Tensor> library_window(const WindowArgs& args, BranchBackend backend) {
  const Reach reach(args);
  const at::Tensor q = args.q.contiguous();
  const at::Tensor k = reach.cut(args.k).contiguous(), v = reach.cut(args.v).contiguous();
  if (backend == BranchBackend::kFlash) return flash_window({q, k, v, args.window, args.scale});
  const LibraryOutputs result = cudnn_causal_forward({q, k, v, args.window, args.scale});
  return {result.out, result.lse};
}

}  // namespace nsa
