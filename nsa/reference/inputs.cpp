#include "nsa/reference/inputs.h"

#include <algorithm>

namespace nsa::reference {
namespace {

template <class T>
Tensor<T> slice_rows(const Tensor<T>& x, int64_t b_begin, int64_t b_end, int64_t t_begin,
                     int64_t t_end) {
  Shape shape = x.shape();
  shape[0] = b_end - b_begin;
  shape[1] = t_end - t_begin;
  Tensor<T> part(shape);
  for (int64_t b = b_begin; b < b_end; ++b)
    for (int64_t t = t_begin; t < t_end; ++t)
      std::ranges::copy(x.row(b, t), part.row(b - b_begin, t - t_begin).begin());
  return part;
}

/// An absent q or gates stays absent.
Inputs slice(const Inputs& x, int64_t b_begin, int64_t b_end, int64_t t_begin, int64_t t_end) {
  Inputs part;
  part.phi_k = x.phi_k;
  part.phi_v = x.phi_v;
  for (const auto member : {&Inputs::q, &Inputs::k_cmp_src, &Inputs::v_cmp_src, &Inputs::k_sel,
                            &Inputs::v_sel, &Inputs::k_win, &Inputs::v_win, &Inputs::gates})
    if ((x.*member).defined()) part.*member = slice_rows(x.*member, b_begin, b_end, t_begin, t_end);
  return part;
}

}  // namespace

void check_keys(const Config& c, const Inputs& x) {
  validate(c);
  require_rank("forward", "k_sel", x.k_sel, 4, "[B,S,Hkv,dk]");
  const int64_t B = x.k_sel.size(0), S = x.k_sel.size(1);
  const Shape keys = {B, S, c.num_kv_heads, c.qk_head_dim};
  const Shape values = {B, S, c.num_kv_heads, c.v_head_dim};
  require_shape("forward", "k_sel", x.k_sel, keys);
  require_shape("forward", "v_sel", x.v_sel, values);
  require_shape("forward", "k_cmp_src", x.k_cmp_src, keys);
  require_shape("forward", "v_cmp_src", x.v_cmp_src, values);
  require_shape("forward", "k_win", x.k_win, keys);
  require_shape("forward", "v_win", x.v_win, values);
  check_phi_weights(c, x.phi_k, c.qk_head_dim, "k");
  check_phi_weights(c, x.phi_v, c.v_head_dim, "v");
}

void check_inputs(const Config& c, const Inputs& x) {
  check_keys(c, x);
  const int64_t B = x.k_sel.size(0), S = x.k_sel.size(1);
  require_shape("forward", "q", x.q, {B, S, c.num_heads, c.qk_head_dim});
  const std::string gates = c.gate == Gate::kNone ? "gates" : "gate_logits";
  require_rank("forward", gates, x.gates, 4, "[B,S,Hq,3] or [B,S,Hkv,3]");
  const bool per_group = x.gates.size(2) == c.num_kv_heads;
  require_shape("forward", gates, x.gates, {B, S, per_group ? c.num_kv_heads : c.num_heads, 3});
}

void check_given(const Config& c, const Inputs& x, const Given& given) {
  const int64_t B = x.k_sel.size(0), S = x.k_sel.size(1), Hkv = c.num_kv_heads;
  const auto check = [](const char* name, const auto& tensor, const Shape& want) {
    if (tensor.defined()) require_shape("forward", name, tensor, want);
  };
  check("given q_rot", given.q_rot, {B, S, c.num_heads, c.qk_head_dim});
  check("given k_sel_rot", given.k_sel_rot, x.k_sel.shape());
  check("given k_win_rot", given.k_win_rot, x.k_win.shape());
  check("given k_cmp", given.k_cmp, {B, num_compressed(c, S), Hkv, c.qk_head_dim});
  check("given v_cmp", given.v_cmp, {B, num_compressed(c, S), Hkv, c.v_head_dim});
  if (given.block_idx.defined()) {
    require_rank("forward", "given block_idx", given.block_idx, 4, "[B,S,Hkv,K]");
    check("given block_idx", given.block_idx, {B, S, Hkv, given.block_idx.size(3)});
  }
  if (given.ranges.defined()) {
    require_rank("forward", "given ranges", given.ranges, 5, "[B,S,Hkv,K,2]");
    check("given ranges", given.ranges, {B, S, Hkv, given.ranges.size(3), 2});
  }
}

Inputs slice_tokens(const Inputs& x, int64_t begin, int64_t end) {
  if (!(0 <= begin && begin <= end && end <= x.q.size(1)))
    reject("slice_tokens", "[begin, end)", "inside 0.." + std::to_string(x.q.size(1)),
           "[" + std::to_string(begin) + ", " + std::to_string(end) + ")");
  return slice(x, 0, x.q.size(0), begin, end);
}

Inputs slice_sequence(const Inputs& x, int64_t b) {
  if (!(0 <= b && b < x.q.size(0)))
    reject("slice_sequence", "b", "inside 0.." + std::to_string(x.q.size(0)), std::to_string(b));
  return slice(x, b, b + 1, 0, x.q.size(1));
}

}  // namespace nsa::reference
