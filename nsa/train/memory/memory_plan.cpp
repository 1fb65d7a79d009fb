#include "nsa/train/memory/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "nsa/train/memory/last_layer.h"
#include "nsa/train/memory/mib.h"

namespace nsa::train {
namespace {

constexpr double kFloat = 4;  ///< bytes of the accumulation type; fp64 accumulates in itself

/// Bytes that one layer keeps for its backward pass, for each token.
struct LayerBytes {
  double norms = 0, shared = 0, compressed = 0, selected = 0, window = 0, gates = 0, mlp = 0;
  double total() const { return norms + shared + compressed + selected + window + gates + mlp; }
};

/// Output of a branch as it is kept: its own, and, where it is narrower, in the accumulation type
/// for the gates; the log-sum-exp of every head.
double branch_output(const NsaConfig& c, double e, double sum) {
  const double width = static_cast<double>(c.num_heads * c.v_head_dim);
  return width * (e + (sum > e ? sum : 0)) + sum * static_cast<double>(c.num_heads);
}

/// Norms of kernels are computed again from the sum they stand on, the product of the MLP from
/// gate and up.
void add_stream(const ModelConfig& model, const StepShape& shape, LayerBytes& b) {
  const auto e = static_cast<double>(shape.value_bytes), sum = std::max(kFloat, e);
  // Twice: the residual stream as it comes in, what the norm makes of it, and its scale.
  b.norms = 2 * ((shape.kernels ? 1 : 2) * static_cast<double>(model.dim) * e + sum);
  // Gate and up, SiLU, their product.
  b.mlp = (shape.kernels ? 2 : 4) * static_cast<double>(model.mlp_hidden) * e;
}

/// Logits of linear gates come with the projection, in its type; the gates are in another.
double linear_gates(const NsaConfig& c, double logit, double gate) {
  return 3 * static_cast<double>(c.num_heads) * (logit + gate);
}

LayerBytes bytes_by_kernels(const ModelConfig& model, double e) {
  const NsaConfig& c = model.attention;
  const auto sets = static_cast<double>(model.projections.num_kv());
  const auto kv = static_cast<double>(c.num_kv_heads), heads = static_cast<double>(c.num_heads);
  const double q = heads * static_cast<double>(c.qk_head_dim) * e;
  const double output = heads * (static_cast<double>(c.v_head_dim) * e + kFloat);  // and its lse
  const double keys = kv * static_cast<double>(c.qk_head_dim) * e;
  const double pair = keys + kv * static_cast<double>(c.v_head_dim) * e;
  LayerBytes b;
  // The projection, whole, as values and the gates' queries are columns of it; q and two sorts of
  // keys rotated; o for w_o.
  b.shared = q + sets * pair + heads * static_cast<double>(c.v_head_dim) * e;
  if (c.rope != RopeMode::kNone) b.shared += q + 2 * keys;
  b.compressed = output + pair / static_cast<double>(c.block_stride);
  // One of the three outputs is made again of o, but where gates may be negative, and where the
  // pairs that are rotated are halves of a head, which branch by branch compute.
  const bool one_call = c.rope == RopeMode::kNone || c.rope_pairs == RopePairs::kInterleaved;
  const bool two = one_call && c.gate != GateActivation::kNone;
  b.selected = (two ? heads * kFloat : output) + 8 * kv * static_cast<double>(c.top_n);  // ranges
  b.window = output;
  b.gates = model.projections.has_gate_mlp() ? 2 * 3 * kFloat * kv
                                             : linear_gates(c, e, one_call ? 0 : kFloat);
  if (!one_call) b.shared += 2 * keys;  // those of the compressed branch, and as they were
  return b;
}

LayerBytes bytes_by_operators(const ModelConfig& model, double e) {
  const NsaConfig& c = model.attention;
  const double sum = std::max(kFloat, e);
  const auto kv = static_cast<double>(c.num_kv_heads);
  const double pair = kv * static_cast<double>(c.qk_head_dim + c.v_head_dim) * e;
  const double output = branch_output(c, e, sum);
  LayerBytes b;
  b.shared = static_cast<double>(c.num_heads * (c.qk_head_dim + c.v_head_dim)) * e;  // q, o for w_o
  b.compressed = output + pair / static_cast<double>(c.block_stride);
  b.selected = output + pair + 8 * kv * static_cast<double>(c.top_n);  // ranges
  // A shared V is the selected branch's; keys are rotated once more.
  const double window_values =
      model.projections.shared_kv ? 0 : kv * static_cast<double>(c.v_head_dim) * e;
  b.window = output + kv * static_cast<double>(c.qk_head_dim) * e + window_values;
  if (!model.projections.has_gate_mlp()) {
    b.gates = linear_gates(c, e, 2 * sum);
    return b;
  }
  // Group means of q, both layers of the gate MLP, logits and gates.
  const auto hidden = static_cast<double>(std::max<int64_t>(1, c.qk_head_dim / 2));
  b.gates = kv * sum * (static_cast<double>(c.qk_head_dim) + 2 * hidden + 6);
  return b;
}

LayerBytes bytes_of_dense(const NsaConfig& c, double e) {
  const auto heads = static_cast<double>(c.num_heads);
  LayerBytes b;
  b.shared = heads * static_cast<double>(c.qk_head_dim + c.v_head_dim) * e;
  b.window = static_cast<double>(c.num_kv_heads * (c.qk_head_dim + c.v_head_dim)) * e +
             std::max(kFloat, e) * heads;  // its output is o
  return b;
}

LayerBytes layer_bytes(const ModelConfig& model, const StepShape& shape) {
  const NsaConfig& c = model.attention;
  const auto e = static_cast<double>(shape.value_bytes);
  LayerBytes b = model.attention_kind == AttentionKind::kDense ? bytes_of_dense(c, e)
                 : shape.kernels                               ? bytes_by_kernels(model, e)
                                                               : bytes_by_operators(model, e);
  add_stream(model, shape, b);
  return b;
}

double mib(double bytes) { return bytes / kMib; }

bool is_sharded(const StepShape& shape) {
  return shape.sharding == Sharding::kFull && shape.shard_ranks > 1;
}

/// Parameters that a rank keeps between steps, and their moments; gradients as the parameters.
std::vector<MemoryPart> lasting_parts(const ModelConfig& model, const StepShape& shape) {
  const double bytes = static_cast<double>(count_parameters(model) * shape.master_bytes);
  const auto ranks = static_cast<double>(shape.shard_ranks);
  const double parameters = is_sharded(shape) ? bytes / ranks : bytes;
  const double moments = shape.sharding == Sharding::kNone ? bytes : bytes / ranks;
  std::vector<MemoryPart> parts{{"parameters", mib(parameters)}, {"moments", mib(2 * moments)}};
  if (shape.products_workspace > 0)
    parts.push_back({"workspaces of matrix products", mib(shape.products_workspace)});
  return parts;
}

/// Sharded parameters that are whole when the backward pass begins: the head's, and the last
/// layer's on their way.
double gathered_mib(const ModelConfig& model, const StepShape& shape) {
  const int64_t head = (model.vocab + 1) * model.dim;
  return mib(static_cast<double>((head + layer_parameters(model)) * shape.master_bytes));
}

/// A layer's parameters and gradients.
double whole_layer_mib(const ModelConfig& model, const StepShape& shape) {
  return mib(static_cast<double>(2 * layer_parameters(model) * shape.master_bytes));
}

/// Share of the weights whose copies in the compute type are kept.
double rounded_share(const ModelConfig& model, const StepShape& shape) {
  if (shape.activation_checkpointing) return 1.0 / static_cast<double>(model.num_layers);
  return is_sharded(shape) ? 0 : 1;
}

/// Keys and values of other ranks' parts of the rows, which selected and compressed attention of a
/// layer keep.
double others_bytes(const ModelConfig& model, const StepShape& shape) {
  const NsaConfig& c = model.attention;
  const double pair = static_cast<double>(c.num_kv_heads * (c.qk_head_dim + c.v_head_dim)) *
                      static_cast<double>(shape.value_bytes);
  return static_cast<double>(shape.context_ranks - 1) * pair *
         (1 + 1 / static_cast<double>(c.block_stride));
}

/// What exists beside it when the backward pass begins.
std::vector<MemoryPart> activation_parts(const ModelConfig& model, const StepShape& shape,
                                         bool gradients_kept) {
  const auto tokens = static_cast<double>(shape.batch * shape.seq_len);
  const auto e = static_cast<double>(shape.value_bytes);
  const auto dim = static_cast<double>(model.dim);
  const LayerBytes layer = layer_bytes(model, shape);
  const double logits = logits_bytes(model, shape);
  const double later = last_layer_bytes(model, shape, gradients_kept);
  // With checkpointing one layer at a time has its activations, the others their input; the last
  // one's are not made again before the logits are gone.
  const double of_last = shape.activation_checkpointing ? tokens * layer.total() : 0;
  const bool at_logits = later + of_last <= logits;
  const double layers = !shape.activation_checkpointing
                            ? tokens * static_cast<double>(model.num_layers)
                        : later > 0 && at_logits ? 0
                                                 : tokens;
  // Behind the last layer each gives up an input and leaves gradients, which may be more.
  const double input = shape.activation_checkpointing ? tokens * dim * e : 0;
  const double left = gradients_kept || is_sharded(shape) || at_logits
                          ? 0
                          : static_cast<double>(layer_parameters(model) * shape.master_bytes);
  const bool at_first = shape.activation_checkpointing && later > 0 && left > input;
  const double others = static_cast<double>(model.num_layers - 1);
  const auto count = static_cast<double>(count_parameters(model));
  std::vector<MemoryPart> parts;
  if (is_sharded(shape)) parts.push_back({"gathered parameters", gathered_mib(model, shape)});
  if (shape.value_bytes < shape.master_bytes)
    parts.push_back({"weights in the compute type", mib(count * e * rounded_share(model, shape))});
  if (input > 0)
    parts.push_back({"inputs of the layers", mib(input * (at_first ? 1 : others + 1))});
  if (at_first) parts.push_back({"gradients", mib(left * others)});
  parts.insert(parts.end(), {{"norms and residual stream", mib(layer.norms * layers)},
                             {"queries and attention output", mib(layer.shared * layers)},
                             {"compressed branch", mib(layer.compressed * layers)},
                             {"selected branch", mib(layer.selected * layers)},
                             {"window branch", mib(layer.window * layers)},
                             {"keys of other ranks", mib(others_bytes(model, shape) * layers)},
                             {"gates", mib(layer.gates * layers)},
                             {"MLP", mib(layer.mlp * layers)},
                             {"logits and loss", later == 0 || at_logits ? mib(logits) : 0},
                             {"last norm", mib(2 * tokens * dim * e)},
                             {"backward pass of the last layer", at_logits ? 0 : mib(later)}});
  std::erase_if(parts, [](const MemoryPart& part) { return part.mib == 0; });
  return parts;
}

double sum_of(const std::vector<MemoryPart>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0,
                         [](double sum, const MemoryPart& part) { return sum + part.mib; });
}

std::string change_text(const StepShape& from, const StepShape& to) {
  std::string text;
  const auto add = [&](const std::string& setting) { text += (text.empty() ? "" : " ") + setting; };
  if (to.activation_checkpointing != from.activation_checkpointing)
    add("activation_checkpointing=true");
  if (to.sharding != from.sharding) add("shard=full");
  if (to.batch != from.batch)
    add("batch=" + std::to_string(to.batch) + " accum=" + std::to_string(to.accum));
  if (to.seq_len != from.seq_len)
    add("seq_len=" + std::to_string(to.seq_len) + " (shorter rows: another training)");
  return text;
}

/// Every change worth a look, the one that costs least first: the largest micro-batch, for each
/// first without and then with checkpointing, of several ranks with whole and then with sharded
/// parameters, as long as the rows of a step are kept; then shorter rows.
std::vector<StepShape> changes(StepShape shape) {
  std::vector<StepShape> candidates;
  const auto add_both = [&](StepShape candidate) {
    candidates.push_back(candidate);
    candidate.activation_checkpointing = true;
    candidates.push_back(candidate);
  };
  const auto add = [&](StepShape candidate) {
    add_both(candidate);
    if (candidate.ranks == 1 || candidate.sharding == Sharding::kFull) return;
    candidate.sharding = Sharding::kFull;
    add_both(candidate);
  };
  add(shape);
  while (shape.batch % 2 == 0) {
    shape.batch /= 2;
    shape.accum *= 2;
    add(shape);
  }
  while (shape.seq_len > 1) {
    shape.seq_len /= 2;
    add(shape);
  }
  return candidates;
}

}  // namespace

double MemoryPlan::total_mib() const { return sum_of(parts); }

int64_t layer_parameters(const ModelConfig& model) {
  const NsaConfig& c = model.attention;
  const int64_t q = c.num_heads * c.qk_head_dim, o = c.num_heads * c.v_head_dim;
  const int64_t pair = c.num_kv_heads * (c.qk_head_dim + c.v_head_dim);
  const bool dense = model.attention_kind == AttentionKind::kDense;
  int64_t layer = model.dim * (q + o + (dense ? 1 : model.projections.num_kv()) * pair) +
                  3 * model.dim * model.mlp_hidden + 2 * model.dim;
  if (!dense) {
    const int64_t hidden = std::max<int64_t>(1, c.qk_head_dim / 2);
    layer += model.projections.has_gate_mlp() ? hidden * (c.qk_head_dim + 1) + 3 * (hidden + 1)
                                              : 3 * c.num_heads * model.dim;
    for (const int64_t dim : {c.qk_head_dim, c.v_head_dim}) {
      const int64_t l = c.block_size;
      if (c.phi == Phi::kConv) layer += dim * l;
      if (c.phi == Phi::kMlp) layer += l * dim + (l * dim + 1) * dim + (dim + 1) * dim;
    }
  }
  return layer;
}

int64_t count_parameters(const ModelConfig& model) {
  return (model.tied_head ? 1 : 2) * model.vocab * model.dim + model.dim +
         model.num_layers * layer_parameters(model);
}

MemoryPlan plan_memory(const ModelConfig& model, const StepShape& shape) {
  MemoryPlan plan{lasting_parts(model, shape)};
  const MemoryPart gradients{"gradients", plan.parts.front().mib};
  // Gradients come while activations go, unless they stay from micro-batch to micro-batch, or lie
  // in the buckets of several ranks.
  const bool kept = shape.accum > 1 || (shape.ranks > 1 && !is_sharded(shape));
  const std::vector<MemoryPart> activations = activation_parts(model, shape, kept);
  // Sharded gradients are all there when the first layer's backward pass ends, whose parameters and
  // gradients are whole then.
  const MemoryPart whole_layer{"a layer on its way",
                               is_sharded(shape) ? whole_layer_mib(model, shape) : 0};
  const double at_end = gradients.mib + whole_layer.mib;
  if (at_end > sum_of(activations) + (kept ? gradients.mib : 0) && (!kept || is_sharded(shape))) {
    plan.parts.push_back(gradients);
    if (whole_layer.mib > 0) plan.parts.push_back(whole_layer);
    return plan;
  }
  if (kept) plan.parts.push_back(gradients);
  plan.parts.insert(plan.parts.end(), activations.begin(), activations.end());
  return plan;
}

FittingChange fitting_change(const ModelConfig& model, const StepShape& shape, double capacity_mib,
                             double factor) {
  for (const StepShape& candidate : changes(shape)) {
    const std::string text = change_text(shape, candidate);
    const double predicted = plan_memory(model, candidate).total_mib() * factor;
    if (!text.empty() && predicted < capacity_mib) return {text, predicted};
  }
  return {};
}

}  // namespace nsa::train
