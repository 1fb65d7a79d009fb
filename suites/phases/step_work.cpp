#include "suites/phases/step_work.h"

#include <algorithm>

namespace suites {
namespace {

using harness::trace::AnalyticalWork;

constexpr double kBackwardProducts = 2.5;

AnalyticalWork scaled(AnalyticalWork work, double factor) {
  return {work.flops * factor, work.bytes * factor};
}

/// One branch of one layer and one sequence. `reads`: keys over all queries; `keys`: that exist.
AnalyticalWork branch(const nsa::NsaConfig& c, double reads, double keys, double queries,
                      double bytes_per_value) {
  const auto width = static_cast<double>(c.qk_head_dim + c.v_head_dim);
  const auto heads = static_cast<double>(c.num_heads), kv = static_cast<double>(c.num_kv_heads);
  return {.flops = 2 * heads * reads * width,
          .bytes = bytes_per_value * width * (heads * queries + kv * keys)};
}

/// Gradients of q, k, v from those, from o and from its gradient: twice the tensors.
AnalyticalWork backward_of(AnalyticalWork forward) {
  return {forward.flops * kBackwardProducts, forward.bytes * 2};
}

/// A product of activations [tokens, in] with weights [out, in].
AnalyticalWork product(double tokens, double in, double out, double bytes_per_value) {
  return {.flops = 2 * tokens * in * out,
          .bytes = bytes_per_value * (tokens * (in + out) + in * out)};
}

AnalyticalWork operator+(AnalyticalWork a, AnalyticalWork b) {
  return {a.flops + b.flops, a.bytes + b.bytes};
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

std::map<std::string, AnalyticalWork> step_work(const nsa::ModelConfig& model,
                                                const StepShape& shape) {
  const nsa::NsaConfig& c = model.attention;
  const KeyCounts reads = count_keys(c, shape.seq_len);
  const auto queries = static_cast<double>(shape.seq_len);
  const auto blocks = static_cast<double>(c.num_compressed(shape.seq_len));
  const auto bytes = static_cast<double>(shape.bytes_per_value);
  const auto sequences = static_cast<double>(shape.batch * shape.accum);
  const double layers = sequences * static_cast<double>(model.num_layers);
  const double tokens = static_cast<double>(shape.batch) * queries;
  const auto dim = static_cast<double>(model.dim), hidden = static_cast<double>(model.mlp_hidden);
  const auto heads = static_cast<double>(c.num_heads), kv = static_cast<double>(c.num_kv_heads);
  const auto dk = static_cast<double>(c.qk_head_dim), dv = static_cast<double>(c.v_head_dim);
  const double calls = static_cast<double>(shape.accum) * static_cast<double>(model.num_layers);

  const AnalyticalWork cmp = branch(c, reads.compressed, blocks, queries, bytes);
  const AnalyticalWork sel = branch(c, reads.selected, queries, queries, bytes);
  const AnalyticalWork win = branch(c, reads.window, queries, queries, bytes);
  const AnalyticalWork mlp =
      product(tokens, dim, 2 * hidden, bytes) + product(tokens, hidden, dim, bytes);
  const AnalyticalWork project = product(tokens, dim, heads * dk + 3 * kv * (dk + dv), bytes) +
                                 product(tokens, heads * dv, dim, bytes);
  const AnalyticalWork head = product(tokens, dim, static_cast<double>(model.vocab), bytes);
  return {{"nsa.cmp_attn+select", scaled(cmp, layers)},
          {"nsa.sel_attn", scaled(sel, layers)},
          {"nsa.win_attn", scaled(win, layers)},
          {"nsa.cmp_attn.backward", scaled(backward_of(cmp), layers)},
          {"nsa.sel_attn.backward", scaled(backward_of(sel), layers)},
          {"nsa.win_attn.backward", scaled(backward_of(win), layers)},
          {"model.mlp", scaled(mlp, calls)},
          {"nsa.project", scaled(project, calls)},
          {"model.head", scaled(head, static_cast<double>(shape.accum))}};
}

}  // namespace suites
