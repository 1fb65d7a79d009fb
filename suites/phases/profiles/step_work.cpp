#include "suites/phases/profiles/step_work.h"

#include <algorithm>

namespace suites {
namespace {

using harness::trace::AnalyticalWork;

AnalyticalWork scaled(AnalyticalWork work, double factor) {
  return {work.flops * factor, work.bytes * factor};
}

/// WorkSizes of one layer and one sequence, as numbers to multiply.
struct WorkSizes {
  double heads, kv, dk, dv, queries, blocks, bytes;
  double width() const { return dk + dv; }
};

/// One branch. `reads`: keys over all queries; `keys`: that exist.
AnalyticalWork branch(const WorkSizes& s, double reads, double keys) {
  return {.flops = 2 * s.heads * reads * s.width(),
          .bytes = s.bytes * s.width() * (s.heads * s.queries + s.kv * keys)};
}

/// Gradients of q, k, v from those, from o and from its gradient: q.k and its two gradients, p.v's
/// two gradients.
AnalyticalWork branch_backward(const WorkSizes& s, double reads, double keys) {
  return {.flops = s.heads * reads * (6 * s.dk + 4 * s.dv),
          .bytes = 2 * branch(s, reads, keys).bytes};
}

AnalyticalWork compression(const WorkSizes& s, double block_size) {
  return {.flops = block_size * s.width() * s.kv * s.blocks,
          .bytes = s.bytes * s.width() * s.kv * (s.queries + s.blocks)};
}

AnalyticalWork rope(const WorkSizes& s) {
  const double values = s.dk * (s.heads + 3 * s.kv) * s.queries;
  return {.flops = 3 * values, .bytes = 2 * s.bytes * values};
}

AnalyticalWork gates(const WorkSizes& s) {
  return {.flops = 5 * s.heads * s.dv * s.queries,
          .bytes = s.bytes * s.heads * s.queries * (4 * s.dv + 3)};
}

/// A product of activations [tokens, in] with weights [out, in].
AnalyticalWork product(double tokens, double in, double out, double bytes_per_value) {
  return {.flops = 2 * tokens * in * out,
          .bytes = bytes_per_value * (tokens * (in + out) + in * out)};
}

AnalyticalWork operator+(AnalyticalWork a, AnalyticalWork b) {
  return {a.flops + b.flops, a.bytes + b.bytes};
}

WorkSizes sizes_of(const nsa::NsaConfig& c, const StepShape& shape) {
  return {.heads = static_cast<double>(c.num_heads),
          .kv = static_cast<double>(c.num_kv_heads),
          .dk = static_cast<double>(c.qk_head_dim),
          .dv = static_cast<double>(c.v_head_dim),
          .queries = static_cast<double>(shape.seq_len),
          .blocks = static_cast<double>(c.num_compressed(shape.seq_len)),
          .bytes = static_cast<double>(shape.bytes_per_value)};
}

}  // namespace

KeyCounts count_keys(const nsa::NsaConfig& c, int64_t seq_len) {
  KeyCounts counts;
  for (int64_t t = 0; t < seq_len; ++t) {
    const int64_t block = t / c.sel_block_size;
    const int64_t selected =
        (std::min(c.top_n, block + 1) - 1) * c.sel_block_size + t - block * c.sel_block_size + 1;
    counts.compressed += static_cast<double>(c.num_compressed(t + 1));
    counts.selected += static_cast<double>(selected);
    counts.window += static_cast<double>(std::min(c.window, t + 1));
  }
  return counts;
}

OperatorWork operator_work(const nsa::NsaConfig& c, const StepShape& shape) {
  const KeyCounts reads = count_keys(c, shape.seq_len);
  const WorkSizes s = sizes_of(c, shape);
  const AnalyticalWork forward =
      compression(s, static_cast<double>(c.block_size)) + branch(s, reads.compressed, s.blocks) +
      branch(s, reads.selected, s.queries) + branch(s, reads.window, s.queries) + gates(s);
  const AnalyticalWork backward = branch_backward(s, reads.compressed, s.blocks) +
                                  branch_backward(s, reads.selected, s.queries) +
                                  branch_backward(s, reads.window, s.queries);
  const double calls = static_cast<double>(shape.batch * shape.accum);
  return {scaled(forward, calls), scaled(backward, calls)};
}

std::map<std::string, AnalyticalWork> step_work(const nsa::ModelConfig& model,
                                                const StepShape& shape) {
  const nsa::NsaConfig& c = model.attention;
  const KeyCounts reads = count_keys(c, shape.seq_len);
  const WorkSizes s = sizes_of(c, shape);
  const double calls = static_cast<double>(shape.accum * model.num_layers);
  const double layers = calls * static_cast<double>(shape.batch);
  const double tokens = static_cast<double>(shape.batch) * s.queries;
  const auto dim = static_cast<double>(model.dim), hidden = static_cast<double>(model.mlp_hidden);
  const AnalyticalWork mlp =
      product(tokens, dim, 2 * hidden, s.bytes) + product(tokens, hidden, dim, s.bytes);
  const auto num_kv = static_cast<double>(model.projections.num_kv());
  const double gate_logits = model.projections.has_gate_mlp() ? 0 : 3 * s.heads;
  const AnalyticalWork project =
      product(tokens, dim, s.heads * s.dk + num_kv * s.kv * s.width() + gate_logits, s.bytes) +
      product(tokens, s.heads * s.dv, dim, s.bytes);
  const AnalyticalWork head = product(tokens, dim, static_cast<double>(model.vocab), s.bytes);
  return {{"nsa.rope", scaled(rope(s), layers)},
          {"nsa.compress", scaled(compression(s, static_cast<double>(c.block_size)), layers)},
          {"nsa.cmp_attn+select", scaled(branch(s, reads.compressed, s.blocks), layers)},
          {"nsa.sel_attn", scaled(branch(s, reads.selected, s.queries), layers)},
          {"nsa.win_attn", scaled(branch(s, reads.window, s.queries), layers)},
          {"nsa.gate", scaled(gates(s), layers)},
          {"nsa.cmp_attn.backward", scaled(branch_backward(s, reads.compressed, s.blocks), layers)},
          {"nsa.sel_attn.backward", scaled(branch_backward(s, reads.selected, s.queries), layers)},
          {"nsa.win_attn.backward", scaled(branch_backward(s, reads.window, s.queries), layers)},
          {"model.mlp", scaled(mlp, calls)},
          {"nsa.project", scaled(project, calls)},
          {"model.head", scaled(head, static_cast<double>(shape.accum))}};
}

}  // namespace suites
