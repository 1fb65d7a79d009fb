#include "nsa/layer/fused/fused_gradients.h"

#ifdef NSA_WITH_CUDA
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/kernels/selected/selected_backward.h"
#include "nsa/layer/fused/fused_tokens.h"
#include "nsa/ops/attention/fused_interval.h"
#include "nsa/ops/compressed/cmp_attn.h"
#include "nsa/ops/gate/fused_combine.h"
#include "nsa/ops/gate/gate.h"
#include "nsa/ops/selected/backends.h"
#include "nsa/ops/selected/sel_attn.h"
#include "nsa/ops/window/win_attn.h"

namespace nsa {
namespace {

using torch::autograd::variable_list;

/// Statistics of the rows of all branches in one allocation.
class RowStatistics {
 public:
  explicit RowStatistics(const SavedCall& s)
      : rows_((s.lse[0].numel() + 3) / 4 * 4),
        data_(at::empty({4 + 6 * rows_}, s.lse[0].options())) {}

  int* flags() const { return reinterpret_cast<int*>(data_.mutable_data_ptr<float>()); }
  kernels::IntervalRows interval(int64_t which) const {
    return {place(2 * which), place(2 * which + 1), flags() + which};
  }
  /// Of a branch that the kernel of the selected one differentiates.
  const float* selected(int64_t branch = 1) const { return place(pair_of(branch)); }
  std::array<kernels::GatedRows, 3> gated(const SavedCall& s) const {
    const auto lse = [&](size_t i) { return s.lse[i].const_data_ptr<float>(); };
    const auto pairs = [&](int64_t i) {
      float* const to = place(pair_of(i));
      return kernels::GatedRows{lse(size_t(i)), to, to + 1, 2, false, /*marks_bad_rows=*/true};
    };
    if (s.packed != nullptr) return {pairs(0), pairs(1), pairs(2)};
    return {{{lse(0), place(0), place(1), 1, /*by_kv_head=*/true, false},
             pairs(1),
             {lse(2), place(2), place(3), 1, /*by_kv_head=*/true, false}}};
  }

 private:
  static int64_t pair_of(int64_t branch) { return branch == 1 ? 4 : branch; }
  float* place(int64_t i) const { return data_.mutable_data_ptr<float>() + 4 + i * rows_; }

  int64_t rows_;
  at::Tensor data_;
};

/// Of the selected branch. Its whole tiles pass over all keys, so the pairs of a window of the same
/// keys are among theirs.
SelAttnArgs selected_args(const SavedCall& s, const NsaConfig& config,
                          const BranchKernels& chosen) {
  SelAttnArgs args = s.selected(config);
  const bool one_branch =
      s.one_key && s.packed == nullptr && config.window >= kernels::JoinedWindow::kLeast &&
      config.gate != GateActivation::kNone && config.win_scale() == config.sel_scale();
  if (!one_branch || chosen.win.code != KernelCode::kSm90 || chosen.sel.code != KernelCode::kSm90)
    return args;
  args.window = std::min<int64_t>(config.window, kernels::IntervalRule::kEverything);
  if (sel_attn_window_queries(args, chosen.sel.code) == 0) args.window = 0;
  return args;
}

}  // namespace

int64_t first_joined(const SavedCall& s, const NsaConfig& config, const BranchKernels& chosen) {
  return sel_attn_first_joined(selected_args(s, config, chosen), chosen.sel.code);
}

BranchGradients gradients_by_kernels(SavedCall& s, const NsaConfig& config,
                                     const BranchKernels& chosen, const at::Tensor& d_o,
                                     bool branches, const at::Tensor& q_out) {
  BranchGradients g;
  std::array<at::Tensor, 3> d_out{d_o, d_o, d_o};
  const RowStatistics statistics(s);
  // A gate that may be negative has no logarithm.
  const bool folded = config.gate != GateActivation::kNone;
  if (folded) {
    g.logits = gated_sum_statistics({s.out, s.logits, config.gate, s.keeps_two}, d_o,
                                    config.num_kv_heads, statistics.gated(s), statistics.flags());
    s.out = {};  // frees their memory for what follows, where nobody else holds them
  } else {
    GatedGradients d = gated_sum_backward({s.out, s.logits, config.gate}, d_o);
    g.logits = std::move(d.logits), d_out = std::move(d.branch);
  }
  if (!branches) return g;
  // Packed documents: keys that a token attends are a range of those of all.
  const auto of_ranges = [&](const char* stage, size_t branch, const at::Tensor& k,
                             const at::Tensor& v, const at::Tensor& ranges, double scale,
                             int64_t max_tiles) -> AttentionGradients {
    if (k.size(1) == 0)
      return {at::zeros(s.q.sizes(), s.q.options()), at::zeros_like(k), at::zeros_like(v)};
    const NvtxRange range((std::string("nsa.") + stage).c_str());
    record_stage(stage, "fused", "packed ranges");
    const variable_list d = sel_attn_fused_backward(
        {s.q, k, v, ranges, 0, scale, 0, max_tiles}, chosen.sel.code, d_out[branch], s.out[branch],
        s.lse[branch], folded ? statistics.selected(int64_t(branch)) : nullptr);
    return {d[0], d[1], d[2]};
  };
  const auto interval = [&](const char* stage, const KernelChoice& kernel, size_t branch,
                            int64_t which, const at::Tensor& k, const at::Tensor& v,
                            const KeyMask& mask, double scale,
                            const EarlierBranch* earlier = nullptr) {
    const NvtxRange range((std::string("nsa.") + stage).c_str());
    const kernels::IntervalRows rows = statistics.interval(which);
    record_stage(stage, "fused", kernel.detail);
    return fused_interval_backward(s.q, k, v, s.out[branch], s.lse[branch], d_out[branch], {}, mask,
                                   scale, kernel.code, folded ? &rows : nullptr, earlier);
  };
  const AttentionGradients cmp =
      s.packed != nullptr
          ? of_ranges("cmp_attn.backward", 0, s.k_cmp, s.v_cmp, s.packed->cmp_ranges,
                      config.cmp_scale(), s.packed->cmp_tiles_of_row(config))
          : interval("cmp_attn.backward", chosen.cmp, 0, 0, s.k_cmp, s.v_cmp,
                     compressed_mask(config), config.cmp_scale());
  const SelAttnArgs selected = selected_args(s, config, chosen);
  const int64_t in_whole_tiles = sel_attn_window_queries(selected, chosen.sel.code);
  // Added to that of the compressed branch: a sum of two instead of two beside each other.
  const EarlierBranch earlier{s.k_cmp,
                              s.v_cmp,
                              compressed_mask(config),
                              config.cmp_scale(),
                              chosen.cmp.code,
                              statistics.interval(0),
                              cmp.q,
                              in_whole_tiles};
  const AttentionGradients win = [&]() -> AttentionGradients {
    if (config.window == 0)  // no keys
      return {cmp.q, at::zeros_like(s.k_win), at::zeros_like(s.v_win)};
    if (in_whole_tiles > 0 && in_whole_tiles == s.q.size(1)) return {cmp.q, {}, {}};
    if (s.packed != nullptr)
      return of_ranges("win_attn.backward", 2, s.k_win, s.v_win, s.packed->win_ranges,
                       config.win_scale(), s.packed->win_tiles_of_row(config));
    return interval("win_attn.backward", chosen.win, 2, 1, s.k_win, s.v_win, window_mask(config),
                    config.win_scale(), folded ? &earlier : nullptr);
  }();
  g.q_joined = first_joined(s, config, chosen);
  const bool joins = g.q_joined < s.q.size(1);
  // In the place of a term: every thread reads its own places before it writes them.
  if (joins) g.q_out = q_out.defined() ? q_out : cmp.q;
  variable_list others{cmp.q};
  if (!win.q.is_same(cmp.q)) others.push_back(win.q);
  const JoinedGradient joined{others, g.q_out, turns_of(config, s.q, s.packed)};
  const kernels::IntervalRows window = statistics.interval(1);
  const variable_list sel = [&] {
    const NvtxRange range("nsa.sel_attn.backward");
    if (!win.k.defined())
      record_stage("win_attn.backward", "fused", "in whole tiles of the selected branch");
    record_stage("sel_attn.backward", "fused", chosen.sel.detail);
    return sel_attn_fused_backward(selected, chosen.sel.code, d_out[1], s.out[1], s.lse[1],
                                   folded ? statistics.selected() : nullptr,
                                   joins ? &joined : nullptr, &window);
  }();
  g.q = std::move(others);
  g.q.push_back(sel[0]);
  g.k_cmp = cmp.k, g.v_cmp = cmp.v;
  g.k_sel = sel[1], g.v_sel = sel[2];
  g.k_win = win.k, g.v_win = win.v;
  return g;
}

BranchGradients gradients_by_operators(const SavedCall& s, const NsaConfig& config,
                                       const variable_list& grads) {
  const at::AutoGradMode enabled(true);
  variable_list leaves{s.q, s.k_cmp, s.v_cmp, s.k_sel, s.v_sel, s.k_win, s.v_win, s.logits};
  for (at::Tensor& leaf : leaves) leaf = leaf.detach().requires_grad_(true);
  const at::Tensor &q = leaves[0], &logits = leaves[7];
  const CmpSelectResult cmp = cmp_attn_select(q, leaves[1], leaves[2], config);
  const auto sel =
      sel_attn(q, leaves[3], leaves[4], s.ranges, 0,
               {SelBackend::kFused, true, false, config.sel_block_size}, config.scale_sel);
  const auto win = win_attn(q, leaves[5], leaves[6], config.window, 0, {BranchBackend::kFused},
                            config.scale_win);
  const at::Tensor gates = gate_activate(logits, config.gate);
  const at::Tensor o = gate_combine(cmp.out, sel.first, win.first, gates);
  const variable_list all{o, cmp.out, sel.first, win.first, cmp.lse, sel.second, win.second, gates};
  variable_list through, upstream;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!grads[i].defined()) continue;
    through.push_back(all[i]);
    upstream.push_back(grads[i]);
  }
  if (through.empty()) return {};
  const variable_list d = torch::autograd::grad(through, leaves, upstream, std::nullopt, false,
                                                /*allow_unused=*/true);
  BranchGradients g;
  g.k_cmp = d[1], g.v_cmp = d[2], g.k_sel = d[3], g.v_sel = d[4];
  g.k_win = d[5], g.v_win = d[6], g.logits = d[7];
  if (d[0].defined()) g.q.push_back(d[0]);
  return g;
}

}  // namespace nsa
#endif
