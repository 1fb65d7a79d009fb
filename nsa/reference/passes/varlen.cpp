#include "nsa/reference/passes/varlen.h"

#include <algorithm>

#include "nsa/reference/passes/backward.h"
#include "nsa/reference/passes/forward.h"

namespace nsa::reference {
namespace {

constexpr Tensor<double> Inputs::* kTokenTensors[] = {
    &Inputs::q,     &Inputs::k_cmp_src, &Inputs::v_cmp_src, &Inputs::k_sel,
    &Inputs::v_sel, &Inputs::k_win,     &Inputs::v_win,     &Inputs::gates};
constexpr Tensor<double> PhiWeights::* kWeights[] = {&PhiWeights::conv, &PhiWeights::pe,
                                                     &PhiWeights::w1,   &PhiWeights::b1,
                                                     &PhiWeights::w2,   &PhiWeights::b2};

/// [1,L,...] rows to [T,...] rows from `begin` on; a last axis narrower than the packed one is
/// padded with what is there.
template <class T>
void unpack(const Tensor<T>& document, int64_t begin, Tensor<T>& packed) {
  const auto last = static_cast<size_t>(document.shape().back());
  const auto packed_last = static_cast<size_t>(packed.shape().back());
  for (int64_t t = 0; t < document.size(1); ++t) {
    const std::span<const T> from = document.row(0, t);
    const std::span<T> to = packed.row(begin + t);
    for (size_t i = 0; last > 0 && i < from.size(); ++i)
      to[i / last * packed_last + i % last] = from[i];
  }
}

Inputs with_batch_axis(const Inputs& packed) {
  Inputs one = packed;
  for (const auto member : kTokenTensors) {
    Tensor<double>& x = one.*member;
    if (!x.defined()) continue;  // named by check_inputs
    Shape shape = x.shape();
    shape.insert(shape.begin(), 1);
    x = Tensor<double>(shape, std::move(x.values()));
  }
  return one;
}

void check_cu_seqlens(const std::vector<int32_t>& cu, int64_t tokens) {
  const std::string op = "varlen";
  if (cu.empty()) reject(op, "cu_seqlens", "at least 1 long", "0");
  if (cu[0] != 0) reject(op, "cu_seqlens[0]", "0", std::to_string(cu[0]));
  for (size_t i = 1; i < cu.size(); ++i)
    if (cu[i] < cu[i - 1])
      reject(op, "cu_seqlens[" + std::to_string(i) + "]",
             "at least its predecessor " + std::to_string(cu[i - 1]), std::to_string(cu[i]));
  if (cu.back() != tokens)
    reject(op, "the last of cu_seqlens", "T=" + std::to_string(tokens), std::to_string(cu.back()));
}

Inputs checked(const Config& c, const Inputs& packed, const std::vector<int32_t>& cu_seqlens) {
  require_rank("varlen", "q", packed.q, 3, "[T,Hq,dk]");
  Inputs all = with_batch_axis(packed);
  check_inputs(c, all);
  check_cu_seqlens(cu_seqlens, all.q.size(1));
  return all;
}

/// Packed rows [begin, end) as [1,end-begin,...]; stays undefined where `packed` is.
template <class T>
Tensor<T> slice_packed(const std::string& name, const Tensor<T>& packed, int64_t begin,
                       int64_t end) {
  if (!packed.defined()) return {};
  if (packed.size(0) < end)
    reject("varlen", "given " + name, "at least " + std::to_string(end) + " rows",
           std::to_string(packed.size(0)));
  Shape shape = packed.shape();
  shape[0] = end - begin;
  shape.insert(shape.begin(), 1);
  Tensor<T> part(shape);
  for (int64_t t = begin; t < end; ++t)
    std::ranges::copy(packed.row(t), part.row(0, t - begin).begin());
  return part;
}

/// The given values of document i, whose blocks are cu_cmp[i] .. cu_cmp[i+1]-1 of the packed ones.
Given slice_given(const Given& given, const std::vector<int32_t>& cu_seqlens,
                  const std::vector<int32_t>& cu_cmp, size_t i) {
  const int64_t begin = cu_seqlens[i], end = cu_seqlens[i + 1];
  Given one;
  one.q_rot = slice_packed("q_rot", given.q_rot, begin, end);
  one.k_sel_rot = slice_packed("k_sel_rot", given.k_sel_rot, begin, end);
  one.k_win_rot = slice_packed("k_win_rot", given.k_win_rot, begin, end);
  one.k_cmp = slice_packed("k_cmp", given.k_cmp, cu_cmp[i], cu_cmp[i + 1]);
  one.v_cmp = slice_packed("v_cmp", given.v_cmp, cu_cmp[i], cu_cmp[i + 1]);
  one.block_idx = slice_packed("block_idx", given.block_idx, begin, end);
  one.ranges = slice_packed("ranges", given.ranges, begin, end);
  return one;
}

/// Cumulative sum of N_c(length).
std::vector<int32_t> cumulative_blocks(const Config& c, const std::vector<int32_t>& cu_seqlens) {
  std::vector<int32_t> cu_cmp = {0};
  for (size_t i = 1; i < cu_seqlens.size(); ++i)
    cu_cmp.push_back(cu_cmp.back() +
                     static_cast<int32_t>(num_compressed(c, cu_seqlens[i] - cu_seqlens[i - 1])));
  return cu_cmp;
}

VarlenOutputs allocate(const Config& c, const std::vector<int32_t>& cu_seqlens,
                       const Given& given) {
  const int64_t T = cu_seqlens.back(), Hq = c.num_heads, Hkv = c.num_kv_heads;
  int64_t longest = 0;
  VarlenOutputs out;
  out.cu_cmp = cumulative_blocks(c, cu_seqlens);
  for (size_t i = 1; i < cu_seqlens.size(); ++i)
    longest = std::max<int64_t>(longest, cu_seqlens[i] - cu_seqlens[i - 1]);
  const int64_t ids = given.block_idx.defined() ? given.block_idx.shape().back() : c.top_n;
  const int64_t intervals = given.ranges.rank() == 4 ? given.ranges.size(2) : ids;
  out.q_rot = Tensor<double>({T, Hq, c.qk_head_dim});
  out.k_cmp = Tensor<double>({out.cu_cmp.back(), Hkv, c.qk_head_dim});
  out.v_cmp = Tensor<double>({out.cu_cmp.back(), Hkv, c.v_head_dim});
  out.p_cmp = Tensor<double>({T, Hq, num_compressed(c, longest)});
  out.scores = Tensor<double>({T, Hkv, num_sel_blocks(c, longest)});
  out.block_idx = Tensor<int32_t>({T, Hkv, ids});
  out.ranges = Tensor<int32_t>({T, Hkv, intervals, 2});
  for (const auto o : {&Outputs::o_cmp, &Outputs::o_sel, &Outputs::o_win, &Outputs::o})
    out.*o = Tensor<double>({T, Hq, c.v_head_dim});
  for (const auto lse : {&Outputs::lse_cmp, &Outputs::lse_sel, &Outputs::lse_win})
    out.*lse = Tensor<double>({T, Hq});
  out.reads = Tensor<int64_t>({T, Hkv, 3});
  return out;
}

/// Zero gradients in the shapes of the inputs; undefined weights stay undefined.
Inputs zeros_like(const Inputs& packed) {
  Inputs zeros = packed;
  for (const auto member : kTokenTensors) std::ranges::fill((zeros.*member).values(), 0.0);
  for (const auto phi : {&Inputs::phi_k, &Inputs::phi_v})
    for (const auto weight : kWeights) std::ranges::fill((zeros.*phi.*weight).values(), 0.0);
  return zeros;
}

void add(Tensor<double>& sum, const Tensor<double>& x) {
  for (size_t i = 0; i < x.values().size(); ++i) sum.values()[i] += x.values()[i];
}

}  // namespace

Inputs slice_document(const Inputs& packed, int64_t begin, int64_t end) {
  return slice_tokens(with_batch_axis(packed), begin, end);
}

VarlenOutputs forward_varlen(const Config& c, const Inputs& packed,
                             const std::vector<int32_t>& cu_seqlens, const Given& given) {
  const Inputs all = checked(c, packed, cu_seqlens);
  VarlenOutputs out = allocate(c, cu_seqlens, given);
  for (size_t i = 1; i < cu_seqlens.size(); ++i) {
    const int64_t begin = cu_seqlens[i - 1];
    const Outputs one = forward(c, slice_tokens(all, begin, cu_seqlens[i]),
                                slice_given(given, cu_seqlens, out.cu_cmp, i - 1));
    unpack(one.k_cmp, out.cu_cmp[i - 1], out.k_cmp);
    unpack(one.v_cmp, out.cu_cmp[i - 1], out.v_cmp);
    for (const auto member :
         {&Outputs::q_rot, &Outputs::p_cmp, &Outputs::scores, &Outputs::o_cmp, &Outputs::o_sel,
          &Outputs::o_win, &Outputs::o, &Outputs::lse_cmp, &Outputs::lse_sel, &Outputs::lse_win})
      unpack(one.*member, begin, out.*member);
    unpack(one.block_idx, begin, out.block_idx);
    unpack(one.ranges, begin, out.ranges);
    unpack(one.reads, begin, out.reads);
  }
  return out;
}

Inputs backward_varlen(const Config& c, const Inputs& packed,
                       const std::vector<int32_t>& cu_seqlens, const Tensor<double>& d_o,
                       const Given& given) {
  const Inputs all = checked(c, packed, cu_seqlens);
  require_shape("varlen", "d_o", d_o, {all.q.size(1), c.num_heads, c.v_head_dim});
  const std::vector<int32_t> cu_cmp = cumulative_blocks(c, cu_seqlens);
  Inputs d = zeros_like(packed);
  for (size_t i = 1; i < cu_seqlens.size(); ++i) {
    const int64_t begin = cu_seqlens[i - 1], end = cu_seqlens[i];
    const Inputs one =
        backward(c, slice_tokens(all, begin, end), slice_packed("d_o", d_o, begin, end),
                 slice_given(given, cu_seqlens, cu_cmp, i - 1));
    for (const auto member : kTokenTensors) unpack(one.*member, begin, d.*member);
    for (const auto phi : {&Inputs::phi_k, &Inputs::phi_v})
      for (const auto weight : kWeights) add(d.*phi.*weight, one.*phi.*weight);
  }
  return d;
}

}  // namespace nsa::reference
