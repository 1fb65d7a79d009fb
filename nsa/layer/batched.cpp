#include "nsa/layer/batched.h"

#include <ATen/ATen.h>

#include <tuple>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/layer/branches.h"
#include "nsa/layer/fused/fused_call.h"
#include "nsa/layer/fused/fused_tokens.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/rope/rope.h"
#include "nsa/ops/select/positions.h"

namespace nsa {
namespace {

/// What stands before the branches of one call on batched inputs: rotation and compression.
class Sources {
 public:
  Sources(const NsaInputs& inputs, const NsaConfig& config, const NsaOptions& options)
      : in_(inputs), config_(config), options_(options) {}

  AttendedKeys prepare(bool compressed) {
    keys_.v_win = in_.v_win;
    if (tokens_by_kernel(in_, config_) && !differentiated()) {
      prepare_by_kernel(compressed);
    } else {
      rotate();
      compress_sources(compressed);
    }
    keys_.selected = [k = k_sel_, v = in_.v_sel](const at::Tensor&) { return std::pair(k, v); };
    return std::move(keys_);
  }
  const at::Tensor& k_sel() const { return k_sel_; }

 private:
  NvtxRange stage(const char* name) const { return NvtxRange(name, options_.nvtx); }

  bool differentiated() const {
    return needs_gradient({in_.q, in_.k_cmp_src, in_.v_cmp_src, in_.k_sel, in_.v_sel, in_.k_win,
                           in_.v_win, in_.gate_logits});
  }

  /// Rotation, and compression where it is the mean, in one launch without a gradient.
  void prepare_by_kernel(bool compressed) {
    const NvtxRange range =
        stage(config_.rope == RopeMode::kNone ? "nsa.compress" : "nsa.rope");  // most of it
    const bool pools = !compressed && sources_are_pooled(config_);
    const TokenSources sources = make_sources(in_, config_, pools);
    keys_.q_rot = sources.q;
    k_sel_ = sources.k_sel;
    keys_.k_win = sources.k_win;
    if (!pools) return compress_sources(compressed);
    keys_.k_cmp = sources.k_cmp;
    keys_.v_cmp = sources.v_cmp;
    record_stage("compress", "fused");
  }

  void rotate() {
    const NvtxRange range = stage("nsa.rope");
    keys_.q_rot = in_.q;
    k_sel_ = in_.k_sel;
    keys_.k_win = in_.k_win;
    if (config_.rope == RopeMode::kNone) return;
    Rotation rotation(at::arange(in_.q.size(1), in_.q.options().dtype(at::kLong)),
                      config_.rope_base, config_.rope_pairs);
    keys_.q_rot = rotation(in_.q);
    k_sel_ = rotation(in_.k_sel);
    keys_.k_win = rotation(in_.k_win);
  }

  void compress_sources(bool compressed) {
    if (compressed) {
      keys_.k_cmp = in_.k_cmp_src;
      keys_.v_cmp = in_.v_cmp_src;
      return;
    }
    const NvtxRange range = stage("nsa.compress");
    std::tie(keys_.k_cmp, keys_.v_cmp) =
        compress(in_.k_cmp_src, in_.v_cmp_src, in_.phi_k, in_.phi_v, config_);
    record_stage("compress", compress_backend(in_.k_cmp_src, config_));
  }

  const NsaInputs& in_;
  const NsaConfig& config_;
  const NsaOptions& options_;
  at::Tensor k_sel_;
  AttendedKeys keys_;
};

}  // namespace

void check_call(const NsaInputs& in, const NsaConfig& config, const NsaOptions& options) {
  check_inputs("nsa_attention", in, config);
  check_block_idx(in, config, options);
}

void check_block_idx(const NsaInputs& in, const NsaConfig& config, const NsaOptions& options) {
  if (!options.block_idx.defined()) return;
  const ArgumentCheck check("nsa_attention");
  check.sizes("block_idx", options.block_idx, {in.q.size(0), in.q.size(1), config.num_kv_heads, -1},
              "[B, S, Hkv, n]");
  check_ids_type(check, options.block_idx);
  check.same_device("block_idx", options.block_idx, "q", in.q);
}

NsaOutputs batched_attention(const NsaInputs& inputs, const NsaConfig& config,
                             const NsaOptions& options) {
  if (const auto kernels = choose_one_call(inputs, config, options))
    return fused_call(inputs, config, options, *kernels);
  return compose_attention(inputs, config, options).out;
}

Steps compose_attention(const NsaInputs& inputs, const NsaConfig& config, const NsaOptions& options,
                        bool compressed, bool keeps_two) {
  Sources sources(inputs, config, options);
  const AttendedKeys keys = sources.prepare(compressed);
  return {attend_branches(keys, inputs.gate_logits, config, options, keeps_two), sources.k_sel(),
          keys.k_win};
}

}  // namespace nsa
