#include <algorithm>

#include "nsa/reference/passes/backward.h"
#include "nsa/reference/stages/linear.h"
#include "nsa/reference/stages/rope.h"

namespace nsa::reference {
namespace {

using TokenRows = std::vector<std::vector<double>>;  // l rows of D values

TokenRows pool_mean_backward(size_t l, std::span<const double> d_block) {
  TokenRows d(l, std::vector<double>(d_block.begin(), d_block.end()));
  for (auto& row : d)
    for (double& value : row) value /= static_cast<double>(l);
  return d;
}

TokenRows pool_conv_backward(const Tensor<double>& conv, const BlockTokens& tokens,
                             std::span<const double> d_block, Tensor<double>& d_conv) {
  TokenRows d(tokens.size(), std::vector<double>(d_block.size()));
  for (size_t tap = 0; tap < tokens.size(); ++tap)
    for (size_t e = 0; e < d_block.size(); ++e) {
      d[tap][e] = conv(e, tap) * d_block[e];
      d_conv(e, tap) += tokens[tap][e] * d_block[e];
    }
  return d;
}

TokenRows pool_mlp_backward(const PhiWeights& w, const BlockTokens& tokens,
                            std::span<const double> d_block, PhiWeights& d_w) {
  const size_t D = d_block.size();
  std::vector<double> flat;
  for (size_t j = 0; j < tokens.size(); ++j)
    for (size_t e = 0; e < D; ++e) flat.push_back(tokens[j][e] + w.pe(j, e));
  const std::vector<double> before = linear(w.w1, w.b1, flat);
  std::vector<double> hidden = before;
  std::ranges::transform(hidden, hidden.begin(), silu);
  std::vector<double> d_hidden = linear_backward(w.w2, hidden, d_block, d_w.w2, d_w.b2);
  for (size_t o = 0; o < before.size(); ++o) d_hidden[o] *= silu_derivative(before[o]);
  const std::vector<double> d_flat = linear_backward(w.w1, flat, d_hidden, d_w.w1, d_w.b1);

  TokenRows d(tokens.size(), std::vector<double>(D));
  for (size_t j = 0; j < tokens.size(); ++j)
    for (size_t e = 0; e < D; ++e) {
      d[j][e] = d_flat[j * D + e];
      d_w.pe(j, e) += d_flat[j * D + e];
    }
  return d;
}

TokenRows pool_backward(Phi phi, const PhiWeights& w, const BlockTokens& tokens,
                        std::span<const double> d_block, PhiWeights& d_w) {
  if (phi == Phi::kConv) return pool_conv_backward(w.conv, tokens, d_block, d_w.conv);
  if (phi == Phi::kMlp) return pool_mlp_backward(w, tokens, d_block, d_w);
  return pool_mean_backward(tokens.size(), d_block);
}

PhiWeights zeros_like(const PhiWeights& w) {
  PhiWeights zeros;
  for (const auto member : {&PhiWeights::conv, &PhiWeights::pe, &PhiWeights::w1, &PhiWeights::b1,
                            &PhiWeights::w2, &PhiWeights::b2})
    if ((w.*member).defined()) zeros.*member = Tensor<double>((w.*member).shape());
  return zeros;
}

/// `source` as pooling saw it, d_cmp as pooling produced it.
CompressGradients compress_backward(const Config& c, const Tensor<double>& source,
                                    const PhiWeights& weights, const Tensor<double>& d_cmp) {
  CompressGradients d{Tensor<double>(source.shape()), zeros_like(weights)};
  for (int64_t b = 0; b < d_cmp.size(0); ++b)
    for (int64_t i = 0; i < d_cmp.size(1); ++i)
      for (int64_t h = 0; h < d_cmp.size(2); ++h) {
        BlockTokens tokens;
        for (int64_t j = 0; j < c.block_size; ++j)
          tokens.push_back(source.row(b, i * c.block_stride + j, h));
        const TokenRows d_tokens =
            pool_backward(c.phi, weights, tokens, d_cmp.row(b, i, h), d.weights);
        for (int64_t j = 0; j < c.block_size; ++j)
          for (size_t e = 0; e < tokens[0].size(); ++e)
            d.source(b, i * c.block_stride + j, h, e) += d_tokens[static_cast<size_t>(j)][e];
      }
  return d;
}

}  // namespace

CompressGradients compress_keys_backward(const Config& c, const Tensor<double>& k_cmp_src,
                                         const PhiWeights& phi_k, const Tensor<double>& d_k_cmp) {
  require_rank("compress_keys_backward", "k_cmp_src", k_cmp_src, 4, "[B,S,Hkv,dk]");
  check_phi_weights(c, phi_k, k_cmp_src.size(3), "k");
  const Shape& s = k_cmp_src.shape();
  require_shape("compress_keys_backward", "d_k_cmp", d_k_cmp,
                {s[0], num_compressed(c, s[1]), s[2], s[3]});
  if (c.rope == Rope::kNone) return compress_backward(c, k_cmp_src, phi_k, d_k_cmp);
  if (c.rope == Rope::kBeforePool) {
    CompressGradients d =
        compress_backward(c, rope(k_cmp_src, c.rope_base, c.rope_pairs), phi_k, d_k_cmp);
    d.source = rope_backward(d.source, c.rope_base, c.rope_pairs);
    return d;
  }
  const std::vector<double> frequency = rope_frequencies(s[3], c.rope_base);
  Tensor<double> d_pooled = d_k_cmp;
  for (int64_t b = 0; b < s[0]; ++b)
    for (int64_t i = 0; i < d_pooled.size(1); ++i)
      for (int64_t h = 0; h < s[2]; ++h)
        rotate(d_pooled.row(b, i, h), -i * c.block_stride, frequency, c.rope_pairs);
  return compress_backward(c, k_cmp_src, phi_k, d_pooled);
}

CompressGradients compress_values_backward(const Config& c, const Tensor<double>& v_cmp_src,
                                           const PhiWeights& phi_v, const Tensor<double>& d_v_cmp) {
  require_rank("compress_values_backward", "v_cmp_src", v_cmp_src, 4, "[B,S,Hkv,dv]");
  check_phi_weights(c, phi_v, v_cmp_src.size(3), "v");
  const Shape& s = v_cmp_src.shape();
  require_shape("compress_values_backward", "d_v_cmp", d_v_cmp,
                {s[0], num_compressed(c, s[1]), s[2], s[3]});
  return compress_backward(c, v_cmp_src, phi_v, d_v_cmp);
}

}  // namespace nsa::reference
