// Selected attention on token intervals that no selection makes; declared in invariant_checks.h.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "nsa/reference/branches/sel_attention.h"
#include "suites/conformance/checks/invariant_checks.h"
#include "suites/conformance/convert.h"

namespace suites {
namespace {

using at::Tensor;

/// Intervals [B,S,Hkv,K,2]: overlapping, unordered, empty, reversed, beyond t; rows of every fourth
/// token have none.
Tensor hostile_ranges(const CaseConfig& c, int64_t places, at::Generator& g) {
  const std::vector<int64_t> shape = {c.batch, c.tokens, c.num_kv_heads, places};
  const Tensor begin = at::randint(0, c.tokens + 1, shape, g, at::TensorOptions(at::kInt));
  const Tensor length = at::randint(-2, 9, shape, g, at::TensorOptions(at::kInt));
  Tensor ranges = at::stack({begin, (begin + length).clamp_min(0)}, -1);
  ranges.slice(1, 0, c.tokens, 4).zero_();
  return ranges;
}

/// Keys each row attends, [B,S,Hkv,S]: inside one of its intervals and not behind it.
Tensor attended(const CaseConfig& c, const Tensor& ranges) {
  const Tensor key = at::arange(c.tokens, ranges.options()),
               t = at::arange(c.tokens, ranges.options()).view({1, -1, 1, 1});
  const Tensor inside = (key >= ranges.select(-1, 0).unsqueeze(-1))
                            .logical_and(key < ranges.select(-1, 1).unsqueeze(-1));
  return inside.any(-2).logical_and(key <= t);
}

struct Attempt {
  Tensor o, lse;
  std::vector<Tensor> gradients;  ///< of q, k, v
};

template <class Attend>
Attempt attempt(const std::vector<Tensor>& qkv, const Tensor& d_o, const Attend& attend) {
  std::vector<Tensor> leaves;
  for (const Tensor& x : qkv) leaves.push_back(x.detach().clone().requires_grad_(true));
  Attempt out;
  std::tie(out.o, out.lse) = attend(leaves[0], leaves[1], leaves[2]);
  if (out.o.requires_grad())
    out.gradients = torch::autograd::grad({out.o}, leaves, {d_o}, std::nullopt, false, true);
  out.gradients.resize(3);
  for (size_t i = 0; i < 3; ++i)
    if (!out.gradients[i].defined()) out.gradients[i] = at::zeros_like(qkv[i]);
  return out;
}

void check_places(const Candidate& candidate, const OperatorCase& one, int64_t places,
                  Checks& checks) {
  const CaseConfig& c = one.config;
  at::Generator g = make_generator(one.seed + 8 + static_cast<uint64_t>(places));
  const auto make = [&](int64_t heads, int64_t dim) {
    return make_data({c.batch, c.tokens, heads, dim}, DataKind::kNormal, g, one.type)
        .to(one.device);
  };
  const std::vector<Tensor> qkv = {make(c.num_heads, c.qk_head_dim),
                                   make(c.num_kv_heads, c.qk_head_dim),
                                   make(c.num_kv_heads, c.v_head_dim)};
  const Tensor d_o = make(c.num_heads, c.v_head_dim);
  const Tensor ranges = hostile_ranges(c, places, g), mask = attended(c, ranges).to(one.device);
  const Attempt got = attempt(qkv, d_o, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return candidate.sel_attn(q, k, v, ranges.to(one.device), 0);
  });
  const Attempt plain = attempt(qkv, d_o, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    const DenseAttention dense = dense_attention(q, k, v, mask);
    return TensorPair{dense.o, dense.lse};
  });
  const auto q = to_reference(qkv[0]), k = to_reference(qkv[1]), v = to_reference(qkv[2]);
  const auto oracle = nsa::reference::sel_attention(q, k, v, to_reference_ids(ranges));
  const auto gradient =
      nsa::reference::sel_attention_backward(q, k, v, to_reference_ids(ranges), to_reference(d_o));
  const std::string name = "/K" + std::to_string(places) + "/" + one.name;
  const auto line = [&](const char* op, const char* tensor, const Tensor& actual,
                        const nsa::reference::Tensor<double>& expected, const Tensor& low) {
    CompareContext context;
    context.plain = low.detach();
    checks.push_back(make_check(
        "oracle/sel_attn/" + dtype_name(one.type) + "/hostile_" + tensor + name,
        compare(actual, from_reference(expected), tolerance(op, tensor, one.type), context)));
  };
  line("sel_attn", "o_sel", got.o, oracle.o, plain.o);
  line("sel_attn", "lse_sel", got.lse, oracle.lse, plain.lse);
  const Tensor empty = mask.any(-1).logical_not().repeat_interleave(c.group_size(), 2).cpu();
  const Tensor touched = (got.o.detach().cpu() != 0)
                             .any(-1)
                             .logical_or(at::isneginf(got.lse.detach().cpu()).logical_not());
  checks.push_back(make_check(
      "invariant/empty_rows/" + dtype_name(one.type) + "/o_sel" + name,
      !touched.logical_and(empty).any().item<bool>(), code::kInvariant,
      std::to_string(empty.sum().item<int64_t>()) + " rows without a key: o 0, lse -inf"));
  if (!candidate.differentiable) return;
  line("attn", "d_q", got.gradients[0], gradient.q, plain.gradients[0]);
  line("attn", "d_k", got.gradients[1], gradient.k, plain.gradients[1]);
  line("attn", "d_v", got.gradients[2], gradient.v, plain.gradients[2]);
  const Tensor moved = (got.gradients[0].cpu() != 0).any(-1).logical_and(empty);
  checks.push_back(make_check("invariant/empty_rows/" + dtype_name(one.type) + "/d_q" + name,
                              !moved.any().item<bool>(), code::kInvariant,
                              "d_q of rows without a key is 0"));
}

}  // namespace

Checks check_hostile_ranges(const Candidate& candidate, const OperatorCase& one) {
  return confirmed(
      [&](const OperatorCase& drawn) {
        Checks checks;
        for (const int64_t places : {0, 1, 5}) check_places(candidate, drawn, places, checks);
        return checks;
      },
      one);
}

}  // namespace suites
