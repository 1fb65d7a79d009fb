#include "nsa/ops/compress/compress.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <string>

#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/compress/fused_pool.h"
#include "nsa/ops/compress/pool.h"
#include "nsa/ops/rope/rope.h"

namespace nsa {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

void check_weight(const ArgumentCheck& check, const char* name, const at::Tensor& weight,
                  std::initializer_list<int64_t> sizes, const char* legend, const at::Tensor& x) {
  check.sizes(name, weight, sizes, legend);
  check.floating(name, weight);
  check.same_device(name, weight, "x", x);
}

void check_weights(const ArgumentCheck& check, const PhiWeights& weights, Phi phi, int64_t l,
                   const at::Tensor& x) {
  const int64_t dim = x.size(3);
  if (phi == Phi::kConv) check_weight(check, "conv", weights.conv, {dim, l}, "[D, l]", x);
  if (phi != Phi::kMlp) return;
  check_weight(check, "pe", weights.pe, {l, dim}, "[l, D]", x);
  check_weight(check, "w1", weights.w1, {dim, l * dim}, "[D, l*D]", x);
  check_weight(check, "b1", weights.b1, {dim}, "[D]", x);
  check_weight(check, "w2", weights.w2, {dim, dim}, "[D, D]", x);
  check_weight(check, "b2", weights.b2, {dim}, "[D]", x);
}

at::Tensor pool(const at::Tensor& x, const PhiWeights& weights, Phi phi, int64_t l, int64_t d) {
  switch (phi) {
    case Phi::kMean:
      return pool_mean(x, l, d);
    case Phi::kConv:
      return pool_conv(x, weights.conv, l, d);
    case Phi::kMlp:
      return pool_mlp(x, weights, l, d);
  }
  TORCH_INTERNAL_ASSERT(false, "phi without a pool");
}

/// The kernel rounds once, at its end: a rotation behind it would be a second rounding.
bool by_kernel(const at::Tensor& x, Phi phi, RopeMode mode) {
  return phi == Phi::kMean && mode != RopeMode::kBlockStart && pools_by_kernel(x);
}

at::Tensor compress_op(const at::Tensor& x, const OptionalTensor& conv, const OptionalTensor& pe,
                       const OptionalTensor& w1, const OptionalTensor& b1, const OptionalTensor& w2,
                       const OptionalTensor& b2, c10::string_view phi_name, int64_t block_size,
                       int64_t block_stride, c10::string_view rope_name, double rope_base,
                       c10::string_view pair_name, int64_t first_position) {
  const ArgumentCheck check("compress");
  check.rank("x", x, 4, "[B, S, Hkv, D]");
  check.floating("x", x);
  check.at_least("block_stride", block_stride, 1);
  check.at_least("block_size", block_size, 1);
  check.multiple("block_size", block_size, block_stride, "block_stride");
  const Phi phi = parse_phi(std::string(phi_name));
  const RopeMode mode = parse_rope_mode(std::string(rope_name));
  const RopePairs pairs = parse_rope_pairs(std::string(pair_name));
  if (mode != RopeMode::kNone && x.size(3) % 2 != 0) {
    check.fail("D", "even unless rope is none", std::to_string(x.size(3)));
  }
  const auto value = [](const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); };
  const PhiWeights weights{value(conv), value(pe), value(w1), value(b1), value(w2), value(b2)};
  check_weights(check, weights, phi, block_size, x);
  const int64_t num_tokens = x.size(1);
  if (num_tokens < block_size) return x.narrow(1, 0, 0).clone();

  const auto positions = [&](int64_t count, int64_t step) {
    return at::arange(first_position, first_position + count * step, step,
                      x.options().dtype(at::kLong));
  };
  const at::Tensor source =
      mode == RopeMode::kBeforePool ? rope(x, positions(num_tokens, 1), rope_base, pairs) : x;
  if (by_kernel(source, phi, mode)) {
    return pool_mean_by_kernel(source, block_size, block_stride);
  }
  at::Tensor pooled = pool(source, weights, phi, block_size, block_stride);
  if (mode == RopeMode::kBlockStart) {
    pooled = rope(pooled, positions(pooled.size(1), block_stride), rope_base, pairs);
  }
  return pooled.to(x.scalar_type());
}

at::Tensor compress_one(const at::Tensor& x, const PhiWeights& weights, const NsaConfig& config,
                        RopeMode mode, int64_t first_position) {
  static const auto op = find_operator<decltype(compress_op)>("nsa::compress");
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
  };
  return op.call(x, optional(weights.conv), optional(weights.pe), optional(weights.w1),
                 optional(weights.b1), optional(weights.w2), optional(weights.b2),
                 to_string(config.phi), config.block_size, config.block_stride, to_string(mode),
                 config.rope_base, to_string(config.rope_pairs), first_position);
}

}  // namespace

PhiWeights make_phi_weights(const NsaConfig& config, int64_t dim, at::TensorOptions options) {
  const int64_t l = config.block_size;
  const auto uniform = [&](at::IntArrayRef shape, int64_t fan_in) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
    return at::empty(shape, options).uniform_(-bound, bound);
  };
  PhiWeights weights;
  if (config.phi == Phi::kConv) weights.conv = at::full({dim, l}, 1.0 / l, options);
  if (config.phi == Phi::kMlp) {
    weights.pe = at::zeros({l, dim}, options);
    weights.w1 = uniform({dim, l * dim}, l * dim);
    weights.b1 = uniform({dim}, l * dim);
    weights.w2 = uniform({dim, dim}, dim);
    weights.b2 = uniform({dim}, dim);
  }
  return weights;
}

std::pair<at::Tensor, at::Tensor> compress(const at::Tensor& k, const at::Tensor& v,
                                           const PhiWeights& phi_k, const PhiWeights& phi_v,
                                           const NsaConfig& config, int64_t first_position) {
  const ArgumentCheck check("compress");
  check.rank("k", k, 4, "[B, S, Hkv, dk]");
  check.sizes("v", v, {k.size(0), k.size(1), k.size(2), -1}, "[B, S, Hkv, dv]");
  check.same_dtype("v", v, "k", k);
  check.same_device("v", v, "k", k);
  return {compress_one(k, phi_k, config, config.rope, first_position),
          compress_one(v, phi_v, config, RopeMode::kNone, 0)};
}

const char* compress_backend(const at::Tensor& k, const NsaConfig& config) {
  return by_kernel(k, config.phi, config.rope) ? "fused" : "plain";
}

PackedCompressed compress_packed(const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& cu_seqlens, const PhiWeights& phi_k,
                                 const PhiWeights& phi_v, const NsaConfig& config) {
  const ArgumentCheck check("compress");
  check.rank("k", k, 3, "[T, Hkv, dk]");
  check.sizes("v", v, {k.size(0), k.size(1), -1}, "[T, Hkv, dv]");
  const std::vector<int64_t> offsets = document_offsets("compress", cu_seqlens, k.size(0));
  std::vector<at::Tensor> k_parts{k.narrow(0, 0, 0)}, v_parts{v.narrow(0, 0, 0)};
  at::Tensor cu_cmp = at::zeros(cu_seqlens.sizes(), at::kInt);
  int32_t total = 0;
  for (size_t doc = 0; doc + 1 < offsets.size(); ++doc) {
    const int64_t begin = offsets[doc], length = offsets[doc + 1] - begin;
    const auto document = [&](const at::Tensor& x) {
      return x.narrow(0, begin, length).unsqueeze(0);
    };
    const auto [k_cmp, v_cmp] = compress(document(k), document(v), phi_k, phi_v, config);
    k_parts.push_back(k_cmp.squeeze(0));
    v_parts.push_back(v_cmp.squeeze(0));
    total += static_cast<int32_t>(k_cmp.size(1));
    cu_cmp.mutable_data_ptr<int32_t>()[doc + 1] = total;
  }
  return {at::cat(k_parts), at::cat(v_parts), cu_cmp.to(cu_seqlens.device())};
}

}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def(
      "compress(Tensor x, Tensor? conv, Tensor? pe, Tensor? w1, Tensor? b1, Tensor? w2, Tensor? "
      "b2, "
      "str phi, int block_size, int block_stride, str rope, float rope_base, "
      "str rope_pairs='interleaved', int first_position=0) -> Tensor",
      TORCH_FN(nsa::compress_op));
}
