#include "suites/faults/documents.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <array>

namespace suites {
namespace {

using at::Tensor;

/// Where the documents of a pack begin: sequences at 0, 2, 4, ...
std::vector<int64_t> offsets_of(int64_t batch, int64_t tokens, int64_t block_size) {
  const std::array<int64_t, 3> between = {0, 1, block_size - 1};
  std::vector<int64_t> offsets{0};
  for (int64_t b = 0; b < batch; ++b) {
    offsets.push_back(offsets.back() + tokens);
    offsets.push_back(offsets.back() + between[static_cast<size_t>(b) % between.size()]);
  }
  return offsets;
}

/// [B, S, ...] -> [T, ...]; other documents hold normal values, ids -1.
Tensor pack(const Tensor& x, const std::vector<int64_t>& offsets) {
  at::Generator generator = at::detail::createCPUGenerator(17);
  std::vector<Tensor> parts;
  for (int64_t b = 0; b < x.size(0); ++b) {
    parts.push_back(x[b]);
    std::vector<int64_t> shape = x[b].sizes().vec();
    shape[0] = offsets[static_cast<size_t>(2 * b + 2)] - offsets[static_cast<size_t>(2 * b + 1)];
    parts.push_back(at::isFloatingType(x.scalar_type())
                        ? at::randn(shape, generator, at::kDouble).to(x.options())
                        : at::full(shape, -1, x.options()));
  }
  return at::cat(parts);
}

/// Rows of the sequences of a packed output, stacked; sequence b begins at `places[b]`.
Tensor unpack(const Tensor& y, const std::vector<int64_t>& places, int64_t rows) {
  std::vector<Tensor> parts;
  for (const int64_t begin : places) parts.push_back(y.narrow(0, begin, rows));
  return at::stack(parts);
}

}  // namespace

nsa::NsaOutputs as_documents(const Layer& layer, const nsa::NsaInputs& inputs,
                             const nsa::NsaConfig& config, const nsa::NsaOptions& options) {
  const int64_t batch = inputs.q.size(0), tokens = inputs.q.size(1);
  const std::vector<int64_t> offsets = offsets_of(batch, tokens, config.block_size);
  nsa::NsaInputs packed = inputs;
  for (Tensor nsa::NsaInputs::* x :
       {&nsa::NsaInputs::q, &nsa::NsaInputs::k_cmp_src, &nsa::NsaInputs::v_cmp_src,
        &nsa::NsaInputs::k_sel, &nsa::NsaInputs::v_sel, &nsa::NsaInputs::k_win,
        &nsa::NsaInputs::v_win, &nsa::NsaInputs::gate_logits})
    packed.*x = pack(inputs.*x, offsets);
  packed.cu_seqlens = at::tensor(offsets, at::kInt).to(inputs.q.device());
  nsa::NsaOptions own = options;
  if (options.block_idx.defined()) own.block_idx = pack(options.block_idx, offsets);
  nsa::NsaOutputs out = layer(packed, config, own);

  std::vector<int64_t> token_places, block_places;
  const Tensor cu_cmp = out.cu_cmp.cpu();
  for (int64_t b = 0; b < batch; ++b) {
    token_places.push_back(offsets[static_cast<size_t>(2 * b)]);
    block_places.push_back(cu_cmp[2 * b].item<int64_t>());
  }
  for (Tensor nsa::NsaOutputs::* y :
       {&nsa::NsaOutputs::o, &nsa::NsaOutputs::o_cmp, &nsa::NsaOutputs::o_sel,
        &nsa::NsaOutputs::o_win, &nsa::NsaOutputs::lse_cmp, &nsa::NsaOutputs::lse_sel,
        &nsa::NsaOutputs::lse_win, &nsa::NsaOutputs::q_rot, &nsa::NsaOutputs::scores,
        &nsa::NsaOutputs::block_idx, &nsa::NsaOutputs::ranges})
    out.*y = unpack(out.*y, token_places, tokens);
  out.scores = out.scores.narrow(-1, 0, config.num_sel_blocks(tokens)).contiguous();
  const int64_t blocks = cu_cmp[1].item<int64_t>() - cu_cmp[0].item<int64_t>();
  out.k_cmp = unpack(out.k_cmp, block_places, blocks);
  out.v_cmp = unpack(out.v_cmp, block_places, blocks);
  return out;
}

}  // namespace suites
