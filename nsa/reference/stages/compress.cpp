#include "nsa/reference/stages/compress.h"

#include <algorithm>

#include "nsa/reference/stages/linear.h"
#include "nsa/reference/stages/rope.h"

namespace nsa::reference {
namespace {

std::vector<double> pool_mean(const BlockTokens& tokens) {
  std::vector<double> mean(tokens[0].size(), 0.0);
  for (size_t e = 0; e < mean.size(); ++e) {
    for (const auto& token : tokens) mean[e] += token[e];
    mean[e] /= static_cast<double>(tokens.size());
  }
  return mean;
}

std::vector<double> pool_conv(const Tensor<double>& conv, const BlockTokens& tokens) {
  std::vector<double> sum(tokens[0].size(), 0.0);
  for (size_t e = 0; e < sum.size(); ++e)
    for (size_t tap = 0; tap < tokens.size(); ++tap) sum[e] += conv(e, tap) * tokens[tap][e];
  return sum;
}

std::vector<double> pool_mlp(const PhiWeights& weights, const BlockTokens& tokens) {
  std::vector<double> flat;  // token-major, position encoding added
  for (size_t j = 0; j < tokens.size(); ++j)
    for (size_t e = 0; e < tokens[j].size(); ++e) flat.push_back(tokens[j][e] + weights.pe(j, e));
  std::vector<double> hidden = linear(weights.w1, weights.b1, flat);
  for (double& h : hidden) h = silu(h);
  return linear(weights.w2, weights.b2, hidden);
}

Tensor<double> compress(const Config& c, const Tensor<double>& source, const PhiWeights& weights,
                        bool keys) {
  const int64_t blocks = num_compressed(c, source.size(1));
  Tensor<double> pooled({source.size(0), blocks, source.size(2), source.size(3)});
  for (int64_t b = 0; b < source.size(0); ++b)
    for (int64_t i = 0; i < blocks; ++i)
      for (int64_t h = 0; h < source.size(2); ++h) {
        BlockTokens tokens;
        for (int64_t j = 0; j < c.block_size; ++j)
          tokens.push_back(source.row(b, i * c.block_stride + j, h));
        const std::vector<double> block = pool(c.phi, weights, tokens);
        const std::span<double> out = pooled.row(b, i, h);
        std::ranges::copy(block, out.begin());
        if (keys) key_after_pool(c, out, i);
      }
  return pooled;
}

}  // namespace

int64_t num_compressed(const Config& c, int64_t tokens) {
  return tokens < c.block_size ? 0 : (tokens - c.block_size) / c.block_stride + 1;
}

int64_t num_sel_blocks(const Config& c, int64_t tokens) {
  return tokens == 0 ? 0 : (tokens - 1) / c.sel_block_size + 1;
}

std::vector<double> pool(Phi phi, const PhiWeights& weights, const BlockTokens& tokens) {
  if (phi == Phi::kConv) return pool_conv(weights.conv, tokens);
  if (phi == Phi::kMlp) return pool_mlp(weights, tokens);
  return pool_mean(tokens);
}

void key_after_pool(const Config& c, std::span<double> pooled, int64_t block) {
  if (c.rope == Rope::kBlockStart)
    rotate(pooled, block * c.block_stride, rope_frequencies(c.qk_head_dim, c.rope_base),
           c.rope_pairs);
}

Tensor<double> compress_keys(const Config& c, const Tensor<double>& k_cmp_src,
                             const PhiWeights& phi_k) {
  require_rank("compress_keys", "k_cmp_src", k_cmp_src, 4, "[B,S,Hkv,dk]");
  check_phi_weights(c, phi_k, k_cmp_src.size(3), "k");
  if (c.rope == Rope::kBeforePool)
    return compress(c, rope(k_cmp_src, c.rope_base, c.rope_pairs), phi_k, true);
  return compress(c, k_cmp_src, phi_k, true);
}

Tensor<double> compress_values(const Config& c, const Tensor<double>& v_cmp_src,
                               const PhiWeights& phi_v) {
  require_rank("compress_values", "v_cmp_src", v_cmp_src, 4, "[B,S,Hkv,dv]");
  check_phi_weights(c, phi_v, v_cmp_src.size(3), "v");
  return compress(c, v_cmp_src, phi_v, false);
}

void check_phi_weights(const Config& c, const PhiWeights& weights, int64_t head_dim,
                       const std::string& suffix) {
  struct Expected {
    std::string name;
    const Tensor<double>& tensor;
    Phi phi;
    Shape shape;
  };
  const int64_t l = c.block_size, D = head_dim;
  const std::string mlp = "phi_" + suffix + ".";
  const Expected all[] = {{"conv_" + suffix, weights.conv, Phi::kConv, {D, l}},
                          {mlp + "pe", weights.pe, Phi::kMlp, {l, D}},
                          {mlp + "w1", weights.w1, Phi::kMlp, {D, l * D}},
                          {mlp + "b1", weights.b1, Phi::kMlp, {D}},
                          {mlp + "w2", weights.w2, Phi::kMlp, {D, D}},
                          {mlp + "b2", weights.b2, Phi::kMlp, {D}}};
  for (const Expected& e : all) {
    if (e.phi == c.phi)
      require_shape("compress", e.name, e.tensor, e.shape);
    else if (e.tensor.defined())
      reject("compress", e.name, "absent for this phi", to_string(e.tensor.shape()));
  }
}

}  // namespace nsa::reference
