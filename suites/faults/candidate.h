#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nsa/config/config.h"
#include "nsa/decode/cache/layer_cache.h"
#include "nsa/layer/nsa_attention.h"
#include "nsa/ops/compress/compress.h"
#include "nsa/ops/compressed/cmp_attn.h"
#include "nsa/ops/gate/gate.h"
#include "nsa/ops/select/ranges.h"
#include "nsa/switches/switches.h"

/// The implementation under test, one function a stage, so that a fault can be injected around any
/// of them without a hook in nsa/. Every check of suites/conformance goes through a Candidate.
namespace suites {

using TensorPair = std::pair<at::Tensor, at::Tensor>;

struct Candidate {
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& positions, double base)> rope;
  std::function<TensorPair(const at::Tensor& k, const at::Tensor& v, const nsa::PhiWeights& phi_k,
                           const nsa::PhiWeights& phi_v, const nsa::NsaConfig& config)>
      compress;
  std::function<nsa::CmpAttnResult(const at::Tensor& q, const at::Tensor& k_cmp,
                                   const at::Tensor& v_cmp, const nsa::NsaConfig& config,
                                   int64_t first_position)>
      cmp_attn;
  std::function<at::Tensor(const at::Tensor& group_probs, int64_t num_sel_blocks,
                           const nsa::NsaConfig& config)>
      scores;
  std::function<at::Tensor(const at::Tensor& scores, const at::Tensor& t,
                           const nsa::NsaConfig& config)>
      select;
  std::function<at::Tensor(nsa::RangesVersion version, const at::Tensor& block_idx,
                           const at::Tensor& t, int64_t sel_block_size)>
      ranges;
  std::function<TensorPair(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& ranges, int64_t first_position)>
      sel_attn;
  std::function<TensorPair(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           int64_t window, int64_t first_position)>
      win_attn;
  std::function<at::Tensor(const at::Tensor& o_cmp, const at::Tensor& o_sel,
                           const at::Tensor& o_win, const at::Tensor& gates)>
      combine;
  std::function<at::Tensor(const at::Tensor& q, const nsa::GateWeights& weights,
                           int64_t num_kv_heads)>
      gate_mlp;
  std::function<nsa::NsaOutputs(const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                                const nsa::NsaOptions& options)>
      layer;
  /// Fills a cache: the first lengths[b] tokens of row b.
  std::function<nsa::DecodeOutputs(nsa::LayerCache& cache, const nsa::NsaInputs& tokens,
                                   const std::vector<int64_t>& lengths,
                                   const nsa::NsaOptions& options)>
      prefill;
  /// The switches in force when the environment holds `values`.
  std::function<nsa::SwitchSet(const nsa::SwitchSet::Values& values)> switches;
  /// What `layer` must record as having run, by stage.
  std::map<std::string, std::string> runs;
  bool whole = false;          ///< the operator is judged by `layer` alone, not stage by stage
  bool differentiable = true;  ///< false: forward only
};

/// The plain operators of nsa/, untouched; the selected branch by gather.
Candidate plain_candidate();

}  // namespace suites
