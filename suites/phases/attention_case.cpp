#include "suites/phases/attention_case.h"

#include <ATen/ATen.h>

namespace suites {

using at::Tensor;

CaseConfig attention_sizes(const Args& args, int64_t num_heads, int64_t num_kv_heads,
                           int64_t head_dim) {
  CaseConfig c = attention_sizes(nsa::m7c_125m(), 1, 1);
  c.num_heads = args.get_int("Hq", num_heads, 1);
  c.num_kv_heads = args.get_int("Hkv", num_kv_heads, 1);
  c.qk_head_dim = c.v_head_dim = args.get_int("dk", head_dim, 2);
  return c;
}

CaseConfig attention_sizes(const nsa::NsaConfig& config, int64_t batch, int64_t tokens) {
  CaseConfig c;
  c.batch = batch;
  c.tokens = tokens;
  c.num_heads = config.num_heads;
  c.num_kv_heads = config.num_kv_heads;
  c.qk_head_dim = config.qk_head_dim;
  c.v_head_dim = config.v_head_dim;
  c.block_size = config.block_size;
  c.block_stride = config.block_stride;
  c.sel_block_size = config.sel_block_size;
  c.top_n = config.top_n;
  c.n_initial = config.num_initial;
  c.n_local = config.num_local;
  c.window = config.window;
  return c;
}

DenseInputs draw_inputs(const CaseConfig& c, at::ScalarType type, at::Device device,
                        uint64_t seed) {
  at::manual_seed(seed);
  const auto options = at::TensorOptions().dtype(type).device(device);
  const auto draw = [&](int64_t heads, int64_t width) {
    return at::randn({c.batch, c.tokens, heads, width}, options);
  };
  DenseInputs in;
  in.q = draw(c.num_heads, c.qk_head_dim);
  for (Tensor* k : {&in.k_cmp_src, &in.k_sel, &in.k_win}) *k = draw(c.num_kv_heads, c.qk_head_dim);
  for (Tensor* v : {&in.v_cmp_src, &in.v_sel, &in.v_win}) *v = draw(c.num_kv_heads, c.v_head_dim);
  in.gate = draw(c.num_heads, 3);
  return in;
}

DenseInputs narrow_tokens(const DenseInputs& inputs, int64_t begin, int64_t count) {
  DenseInputs part = inputs;
  for (Tensor* x : {&part.q, &part.k_cmp_src, &part.v_cmp_src, &part.k_sel, &part.v_sel,
                    &part.k_win, &part.v_win, &part.gate})
    *x = x->narrow(1, begin, count);
  return part;
}

}  // namespace suites
