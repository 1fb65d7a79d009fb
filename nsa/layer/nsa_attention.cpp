#include "nsa/layer/nsa_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <tuple>

#include "nsa/cmp_attn/cmp_attn.h"
#include "nsa/core/check.h"
#include "nsa/core/nvtx_range.h"
#include "nsa/gate/gate.h"
#include "nsa/layer/packed.h"
#include "nsa/rope/rope.h"
#include "nsa/sel_attn/sel_attn.h"
#include "nsa/select/scores.h"
#include "nsa/select/top_n.h"
#include "nsa/win_attn/win_attn.h"

namespace nsa {
namespace {

/// Queries whose probabilities over all compressed blocks exist at one time.
constexpr int64_t kSelectionQueries = 4096;

void check_inputs(const NsaInputs& in, const NsaConfig& config) {
  const ArgumentCheck check("nsa_attention");
  check.rank("q", in.q, 4, "[B, S, Hq, dk]");
  check.floating("q", in.q);
  const int64_t batch = in.q.size(0), tokens = in.q.size(1), kv = config.num_kv_heads;
  check.sizes("q", in.q, {batch, tokens, config.num_heads, config.qk_head_dim}, "[B, S, Hq, dk]");
  for (const auto& [name, k] : {std::pair{"k_cmp_src", &in.k_cmp_src},
                                std::pair{"k_sel", &in.k_sel}, std::pair{"k_win", &in.k_win}}) {
    check.sizes(name, *k, {batch, tokens, kv, config.qk_head_dim}, "[B, S, Hkv, dk]");
    check.same_dtype(name, *k, "q", in.q);
    check.same_device(name, *k, "q", in.q);
  }
  for (const auto& [name, v] : {std::pair{"v_cmp_src", &in.v_cmp_src},
                                std::pair{"v_sel", &in.v_sel}, std::pair{"v_win", &in.v_win}}) {
    check.sizes(name, *v, {batch, tokens, kv, config.v_head_dim}, "[B, S, Hkv, dv]");
    check.same_dtype(name, *v, "q", in.q);
    check.same_device(name, *v, "q", in.q);
  }
  check.sizes("gate_logits", in.gate_logits, {batch, tokens, -1, 3}, "[B, S, Hq or Hkv, 3]");
  const int64_t gate_heads = in.gate_logits.size(2);
  if (gate_heads != config.num_heads && gate_heads != kv) {
    check.fail("heads of gate_logits",
               "Hq = " + std::to_string(config.num_heads) + " or Hkv = " + std::to_string(kv),
               std::to_string(gate_heads));
  }
}

/// One call of nsa_attention on batched inputs; the steps read like spec/nsa.md section 2.
class BatchedAttention {
 public:
  BatchedAttention(const NsaInputs& inputs, const NsaConfig& config, const NsaOptions& options)
      : in_(inputs),
        config_(config),
        options_(options),
        positions_(at::arange(inputs.q.size(1), inputs.q.options().dtype(at::kLong))) {}

  NsaOutputs run() {
    rotate();
    compress_sources();
    compressed_branch_and_selection();
    selected_and_window_branches();
    combine();
    return std::move(out_);
  }

 private:
  NvtxRange stage(const char* name) const { return NvtxRange(name, options_.nvtx); }
  void ran(const char* name, const std::string& backend) { out_.ran.push_back({name, backend, 1}); }

  void rotate() {
    const NvtxRange range = stage("nsa.rope");
    out_.q_rot = in_.q;
    k_sel_ = in_.k_sel;
    k_win_ = in_.k_win;
    if (config_.rope == RopeMode::kNone) return;
    const at::Tensor table =
        rope_table(positions_, config_.qk_head_dim, config_.rope_base, in_.q.scalar_type());
    out_.q_rot = rope_apply(in_.q, table);
    k_sel_ = rope_apply(in_.k_sel, table);
    k_win_ = rope_apply(in_.k_win, table);
  }

  void compress_sources() {
    const NvtxRange range = stage("nsa.compress");
    std::tie(out_.k_cmp, out_.v_cmp) =
        compress(in_.k_cmp_src, in_.v_cmp_src, in_.phi_k, in_.phi_v, config_);
    ran("compress", "plain");
  }

  void compressed_branch_and_selection() {
    const NvtxRange range = stage("nsa.cmp_attn+select");
    const int64_t num_tokens = in_.q.size(1);
    std::vector<at::Tensor> out, lse, scores, block_idx;
    int64_t begin = 0;
    do {  // once at least: no tokens give empty tensors of the right shapes
      const int64_t count = std::min(kSelectionQueries, num_tokens - begin);
      CmpAttnResult cmp =
          cmp_attn(out_.q_rot.narrow(1, begin, count), out_.k_cmp, out_.v_cmp, config_, begin);
      out.push_back(cmp.out);
      lse.push_back(cmp.lse);
      const bool given = options_.block_idx.defined();
      if (!given || options_.keep_scores) {
        const at::Tensor part =
            block_scores(cmp.group_probs, config_.num_sel_blocks(num_tokens), config_);
        if (options_.keep_scores) scores.push_back(part);
        if (!given) {
          block_idx.push_back(select_blocks(part, positions_.narrow(0, begin, count), config_));
        }
      }
      begin += count;
    } while (begin < num_tokens);
    const auto join = [](const std::vector<at::Tensor>& parts) {
      return parts.size() == 1 ? parts[0] : at::cat(parts, 1);
    };
    out_.o_cmp = join(out);
    out_.lse_cmp = join(lse);
    if (options_.keep_scores) out_.scores = join(scores);
    out_.block_idx = options_.block_idx.defined() ? options_.block_idx : join(block_idx);
    ran("cmp_attn", "plain");
    ran("select", options_.block_idx.defined() ? "given" : "plain");
  }

  void selected_and_window_branches() {
    {
      const NvtxRange range = stage("nsa.ranges");
      out_.ranges =
          block_ranges(options_.ranges, out_.block_idx, positions_, config_.sel_block_size);
      ran("ranges", to_string(options_.ranges));
    }
    {
      const NvtxRange range = stage("nsa.sel_attn");
      std::tie(out_.o_sel, out_.lse_sel) = sel_attn(out_.q_rot, k_sel_, in_.v_sel, out_.ranges);
      ran("sel_attn", "gather");
    }
    const NvtxRange range = stage("nsa.win_attn");
    std::tie(out_.o_win, out_.lse_win) = win_attn(out_.q_rot, k_win_, in_.v_win, config_.window);
    ran("win_attn", "plain");
  }

  void combine() {
    const NvtxRange range = stage("nsa.gate");
    out_.gates = gate_activate(in_.gate_logits, config_.gate);
    out_.o = gate_combine(out_.o_cmp, out_.o_sel, out_.o_win, out_.gates);
    ran("gate", "plain");
  }

  const NsaInputs& in_;
  const NsaConfig& config_;
  const NsaOptions& options_;
  at::Tensor positions_, k_sel_, k_win_;
  NsaOutputs out_;
};

}  // namespace

NsaOptions NsaOptions::from(const SwitchSet& switches) {
  NsaOptions options;
  options.ranges = switches.get_bool("NSA_SEL_RANGES_V2") ? RangesVersion::kV2 : RangesVersion::kV1;
  options.nvtx = switches.get_bool("NSA_NVTX");
  return options;
}

NsaOutputs nsa_attention(const NsaInputs& inputs, const NsaConfig& config,
                         const NsaOptions& options) {
  config.validate();
  if (inputs.cu_seqlens.defined()) return packed_attention(inputs, config, options);
  check_inputs(inputs, config);
  return BatchedAttention(inputs, config, options).run();
}

}  // namespace nsa
