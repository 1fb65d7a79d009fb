#include "suites/faults/candidate.h"

#include "nsa/ops/rope/rope.h"
#include "nsa/ops/select/scores.h"
#include "nsa/ops/select/top_n.h"
#include "nsa/ops/selected/sel_attn.h"
#include "nsa/ops/window/win_attn.h"

namespace suites {

using at::Tensor;

Candidate plain_candidate() {
  Candidate plain;
  plain.rope = [](const at::Tensor& x, const at::Tensor& positions, double base) {
    return nsa::rope(x, positions, base);
  };
  plain.compress = [](const at::Tensor& k, const at::Tensor& v, const nsa::PhiWeights& phi_k,
                      const nsa::PhiWeights& phi_v, const nsa::NsaConfig& config) {
    return nsa::compress(k, v, phi_k, phi_v, config);
  };
  plain.cmp_attn = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const nsa::NsaConfig& config, int64_t first_position) {
    return nsa::cmp_attn(q, k, v, config, first_position);
  };
  plain.scores = nsa::block_scores;
  plain.select = nsa::select_blocks;
  plain.ranges = nsa::block_ranges;
  plain.sel_attn = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& ranges, int64_t first_position) {
    return nsa::sel_attn(q, k, v, ranges, first_position);
  };
  plain.win_attn = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window,
                      int64_t first_position) {
    return nsa::win_attn(q, k, v, window, first_position);
  };
  plain.combine = nsa::gate_combine;
  plain.gate_mlp = nsa::gate_mlp;
  plain.layer = nsa::nsa_attention;
  plain.prefill = [](nsa::LayerCache& cache, const nsa::NsaInputs& tokens,
                     const std::vector<int64_t>& lengths, const nsa::NsaOptions& options) {
    return cache.prefill(tokens, lengths, options);
  };
  plain.runs = {{"cmp_attn", "plain"}, {"sel_attn", "gather"}, {"win_attn", "plain"}};
  plain.switches = [](const nsa::SwitchSet::Values& values) {
    return nsa::SwitchSet::from({}, values, {});
  };
  return plain;
}

}  // namespace suites
