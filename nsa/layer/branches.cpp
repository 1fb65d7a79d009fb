#include "nsa/layer/branches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <tuple>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/layer/strict_asserts.h"
#include "nsa/ops/attention/cpu_attention.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/compressed/cmp_attn.h"
#include "nsa/ops/gate/fused_combine.h"
#include "nsa/ops/gate/gate.h"
#include "nsa/ops/select/positions.h"
#include "nsa/ops/select/scores.h"
#include "nsa/ops/select/top_n.h"
#include "nsa/ops/selected/sel_attn.h"
#include "nsa/ops/window/win_attn.h"

namespace nsa {
namespace {

/// Queries whose probabilities over all compressed blocks exist at one time.
constexpr int64_t kSelectionQueries = 4096;

/// The branches of one piece; the steps read like docs/semantics.md, Stages.
class Branches {
 public:
  Branches(const AttendedKeys& keys, const at::Tensor& gate_logits, const NsaConfig& config,
           const NsaOptions& options, bool keeps_two)
      : keys_(keys),
        gate_logits_(gate_logits),
        config_(config),
        options_(options),
        keeps_two_(keeps_two) {}

  void choose_blocks() {
    out_.q_rot = keys_.q_rot;
    out_.k_cmp = keys_.k_cmp;
    out_.v_cmp = keys_.v_cmp;
    compressed_branch_and_selection();
    assert_compressed_branch();
  }

  NsaOutputs finish() {
    selected_branch();
    window_branch();
    combine();
    return std::move(out_);
  }

 private:
  NvtxRange stage(const char* name) const { return NvtxRange(name, options_.nvtx); }
  int64_t first() const { return keys_.first_position; }
  int64_t num_queries() const { return out_.q_rot.size(1); }

  /// int64 [S]; most kernels know them.
  const at::Tensor& positions() {
    if (!positions_.defined())
      positions_ =
          at::arange(first(), first() + num_queries(), out_.q_rot.options().dtype(at::kLong));
    return positions_;
  }

  /// The kernel of branch, choice and ranges together, or why there is none; no obstacle either
  /// where that was not requested and where nothing is to be chosen.
  KernelChoice fused_selection_kernel() const {
    if (options_.cmp != BranchBackend::kFused || options_.block_idx.defined()) return {};
    if (options_.keep_scores)
      return {KernelCode::kNone, "the kernel leaves no scores (keep_scores)", ""};
    return choose_select_kernel(out_.q_rot, out_.k_cmp, out_.v_cmp, config_);
  }

  void take_selection(const CmpSelectResult& r, const char* backend) {
    ranges_backend_ = backend;
    out_.o_cmp = r.out;
    out_.lse_cmp = r.lse;
    out_.block_idx = r.block_idx;
    out_.ranges = r.ranges;
    record_stage("select", backend);
  }

  /// Whether the CPU kernels choose blocks in the compressed branch: they leave no scores.
  bool selects_on_cpu() const {
    return options_.cmp == BranchBackend::kCpu && !options_.block_idx.defined() &&
           !options_.keep_scores && cpu_kernel_obstacle(out_.q_rot).empty();
  }

  void compressed_branch_and_selection() {
    const NvtxRange range = stage("nsa.cmp_attn+select");
    if (selects_on_cpu())
      return take_selection(
          cmp_attn_select_cpu(out_.q_rot, out_.k_cmp, out_.v_cmp, config_, first()), "cpu");
    const KernelChoice fused = fused_selection_kernel();
    if (fused.runs())
      return take_selection(
          cmp_attn_select(out_.q_rot, out_.k_cmp, out_.v_cmp, config_, fused, first()), "fused");
    const bool given = options_.block_idx.defined();
    std::vector<at::Tensor> out, lse, scores, block_idx;
    int64_t begin = 0;
    do {  // once at least: no tokens give empty tensors of the right shapes
      const int64_t count = std::min(kSelectionQueries, num_queries() - begin);
      const CmpAttnResult cmp = cmp_attn(
          out_.q_rot.narrow(1, begin, count), out_.k_cmp, out_.v_cmp, config_, first() + begin,
          {options_.cmp, options_.strict_backend}, !given || options_.keep_scores);
      out.push_back(cmp.out);
      lse.push_back(cmp.lse);
      if (!given || options_.keep_scores) {
        const NvtxRange select_range = stage("nsa.select");
        const at::Tensor part =
            block_scores(cmp.group_probs, config_.num_sel_blocks(first() + num_queries()), config_);
        if (options_.keep_scores) scores.push_back(part);
        if (!given) {
          block_idx.push_back(select_blocks(part, positions().narrow(0, begin, count), config_));
        }
      }
      begin += count;
    } while (begin < num_queries());
    const auto join = [](const std::vector<at::Tensor>& parts) {
      return parts.size() == 1 ? parts[0] : at::cat(parts, 1);
    };
    out_.o_cmp = join(out);
    out_.lse_cmp = join(lse);
    if (options_.keep_scores) out_.scores = join(scores);
    if (given) {
      const BlockSet set = block_set(options_.block_idx, positions(), config_.sel_block_size);
      out_.block_idx = set.block_idx;
      out_.dropped_ids = set.outside;
    } else {
      out_.block_idx = join(block_idx);
    }
    if (fused.obstacle.empty()) {
      record_stage("select", given ? "given" : "plain");
    } else {
      record_backend("select", "fused", "plain", "", fused.obstacle, options_.strict_backend);
    }
  }

  void assert_compressed_branch() {
    if (!options_.strict_asserts) return;
    std::tie(out_.o_cmp, out_.lse_cmp) = rerouted_if_not_finite(
        "cmp_attn", {out_.o_cmp, out_.lse_cmp}, {out_.q_rot, out_.k_cmp, out_.v_cmp},
        to_string(options_.cmp), to_string(BranchBackend::kPlain), [&]() -> BranchResult {
          const CmpAttnResult again = cmp_attn(out_.q_rot, out_.k_cmp, out_.v_cmp, config_, first(),
                                               {}, /*want_group_probs=*/false);
          return {again.out, again.lse};
        });
  }

  void selected_branch() {
    if (out_.ranges.defined()) {
      record_stage("ranges", ranges_backend_);
    } else {
      const NvtxRange range = stage("nsa.ranges");
      out_.ranges =
          block_ranges(options_.ranges, out_.block_idx, positions(), config_.sel_block_size);
      record_stage("ranges", to_string(options_.ranges));
    }
    const auto [k, v] = keys_.selected(out_.block_idx);
    const NvtxRange range = stage("nsa.sel_attn");
    const auto run = [&, &k = k, &v = v](SelBackend backend) {
      return sel_attn(
          out_.q_rot, k, v, out_.ranges, first(),
          {backend, options_.safe_pack, options_.strict_backend, config_.sel_block_size},
          config_.scale_sel);
    };
    BranchResult result = run(options_.sel);
    if (options_.strict_asserts) {
      if (!options_.block_idx.defined()) {
        check_causal_blocks(out_.block_idx, config_.sel_block_size);
      }
      check_causal_ranges(out_.ranges);
      result = rerouted_if_not_finite("sel_attn", result, {out_.q_rot, k, v},
                                      to_string(options_.sel), to_string(SelBackend::kGather),
                                      [&] { return run(SelBackend::kGather); });
    }
    std::tie(out_.o_sel, out_.lse_sel) = result;
  }

  void window_branch() {
    const NvtxRange range = stage("nsa.win_attn");
    const auto run = [&](BranchBackend backend) {
      return win_attn(out_.q_rot, keys_.k_win, keys_.v_win, config_.window,
                      keys_.k_win.size(1) - num_queries(), {backend, options_.strict_backend},
                      config_.scale_win);
    };
    BranchResult result = run(options_.win);
    if (options_.strict_asserts) {
      result = rerouted_if_not_finite("win_attn", result, {out_.q_rot, keys_.k_win, keys_.v_win},
                                      to_string(options_.win), to_string(BranchBackend::kPlain),
                                      [&] { return run(BranchBackend::kPlain); });
    }
    std::tie(out_.o_win, out_.lse_win) = result;
  }

  /// A gate that may be negative, or of any size, makes none of the branches again.
  bool keeps_two() const { return keeps_two_ && config_.gate != GateActivation::kNone; }

  void combine() {
    const NvtxRange range = stage("nsa.gate");
    if (combines_by_kernel(out_.o_cmp, gate_logits_) &&
        !needs_gradient({out_.o_cmp, out_.o_sel, out_.o_win, gate_logits_})) {
      const GatedSum sum{
          {out_.o_cmp.contiguous(), out_.o_sel.contiguous(), out_.o_win.contiguous()},
          gate_logits_.contiguous(),
          config_.gate,
          keeps_two(),
          keeps_two() ? out_.lse_cmp.contiguous() : at::Tensor()};
      std::tie(out_.o, out_.gates) = [&] {
        const GatedOutput done = gated_sum_by_kernel(sum);
        return std::pair{done.o, done.gates};
      }();
      if (sum.keeps_two) out_.o_cmp = sum.branch[0], out_.o_sel.reset(), out_.o_win = sum.branch[2];
      return record_stage("gate", "fused");
    }
    out_.gates = gate_activate(gate_logits_, config_.gate);
    out_.o = gate_combine(out_.o_cmp, out_.o_sel, out_.o_win, out_.gates);
    record_stage("gate", gate_combine_backend(out_.o_cmp, out_.gates));
  }

  const AttendedKeys& keys_;
  const at::Tensor& gate_logits_;
  const NsaConfig& config_;
  const NsaOptions& options_;
  bool keeps_two_;
  at::Tensor positions_;
  const char* ranges_backend_ = "fused";  ///< of ranges that came with the selection
  NsaOutputs out_;
};

}  // namespace

std::vector<NsaOutputs> attend_pieces(const std::vector<AttendedKeys>& pieces,
                                      const std::vector<at::Tensor>& gate_logits,
                                      const NsaConfig& config, const NsaOptions& options,
                                      bool keeps_two) {
  TORCH_CHECK(pieces.size() == gate_logits.size(), "nsa::attend_pieces: gate_logits must be ",
              pieces.size(), " tensors, one a piece, got ", gate_logits.size());
  std::vector<Branches> branches;
  branches.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    TORCH_CHECK(
        pieces[i].first_position == 0 || !options.strict_asserts,
        "nsa::attend_branches: strict_asserts must be false where queries begin at position ",
        pieces[i].first_position, ", as it counts from 0 (unset NSA_STRICT_ASSERTS)");
    branches.emplace_back(pieces[i], gate_logits[i], config, options, keeps_two);
  }
  for (Branches& piece : branches) piece.choose_blocks();
  std::vector<NsaOutputs> outputs;
  for (Branches& piece : branches) outputs.push_back(piece.finish());
  return outputs;
}

NsaOutputs attend_branches(const AttendedKeys& keys, const at::Tensor& gate_logits,
                           const NsaConfig& config, const NsaOptions& options, bool keeps_two) {
  return std::move(attend_pieces({keys}, {gate_logits}, config, options, keeps_two).front());
}

}  // namespace nsa
