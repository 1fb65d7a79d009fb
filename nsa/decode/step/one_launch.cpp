// A decode step as one launch of the project's kernel, which also appends where it can.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "nsa/backend/kernel_code.h"
#include "nsa/decode/step/active_sequences.h"
#include "nsa/decode/step/graph_capture.h"
#include "nsa/decode/step/step_inputs.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/common/kernel_problem.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/compress/compress.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/kernels/decode/decode_attention.h"
#endif

namespace nsa {
namespace {

/// The kernel of a step for tokens like q, or why there is none.
KernelChoice step_kernel(const NsaConfig& config, const at::Tensor& q) {
  const bool one_scale =
      config.cmp_scale() == config.sel_scale() && config.sel_scale() == config.win_scale();
  return choose_kernel(q, {.family = KernelFamily::kDecodeStep, .qk_head_dim = config.qk_head_dim})
      .unless(config.window == 0 ? "the one launch of a decode step attends a window"
              : one_scale ? ""
                          : "the one launch of a decode step has one scale for all branches");
}

}  // namespace

#ifdef NSA_WITH_CUDA
namespace {

using kernels::DecodeAttention;
static_assert(kMostNewTokens == kernels::kMostNewTokens);

kernels::GateFunction gate_function(GateActivation activation) {
  switch (activation) {
    case GateActivation::kSoftmax:
      return kernels::GateFunction::kSoftmax;
    case GateActivation::kSigmoid:
      return kernels::GateFunction::kSigmoid;
    case GateActivation::kNone:
      return kernels::GateFunction::kNone;
  }
  TORCH_INTERNAL_ASSERT(false, "activation without a kernel");
}

kernels::PagedKv paged(const PagedRows& rows) {
  return {rows.kv.k.mutable_data_ptr(), rows.kv.v.mutable_data_ptr(),
          rows.table().const_data_ptr<int64_t>(), static_cast<int>(rows.page_size()),
          static_cast<int>(rows.pages_per_sequence())};
}

kernels::RingKv ring(const TokenRing& tokens) {
  return {tokens.kv.k.mutable_data_ptr(), tokens.kv.v.mutable_data_ptr(),
          static_cast<int>(tokens.num_slots())};
}

void set_sizes(DecodeAttention& p, const NsaConfig& c, const NsaInputs& tokens) {
  const auto narrow = [](int64_t x) {
    return static_cast<int>(std::min<int64_t>(x, INT32_MAX / 2));
  };
  p.batch = narrow(tokens.q.size(0));
  p.tokens = narrow(tokens.q.size(1));
  p.num_heads = narrow(c.num_heads);
  p.num_kv_heads = narrow(c.num_kv_heads);
  p.qk_head_dim = narrow(c.qk_head_dim);
  p.v_head_dim = narrow(c.v_head_dim);
  p.gate_heads = narrow(tokens.gate_logits.size(2));
  p.block_size = narrow(c.block_size);
  p.block_stride = narrow(c.block_stride);
  p.sel_block_size = narrow(c.sel_block_size);
  p.top_n = narrow(c.top_n);
  p.num_initial = narrow(c.num_initial);
  p.num_local = narrow(c.num_local);
  p.window_size = narrow(c.window);
  p.scale = static_cast<float>(c.sel_scale());  // of all branches, see step_kernel
  p.gate = gate_function(c.gate);
  p.element = element_of(tokens.q);
}

/// The kernel appends by itself where blocks are means that need no rotation of their own, and
/// rotates interleaved pairs only. Else it attends to what plain operators append.
bool kernel_appends(const NsaConfig& config) {
  const bool rotates =
      config.rope == RopeMode::kNone ||
      (config.rope == RopeMode::kBeforePool && config.rope_pairs == RopePairs::kInterleaved);
  return config.phi == Phi::kMean && rotates;
}

/// Tensors that a launch reads; they live until it is enqueued.
struct LaunchInputs {
  at::Tensor q, k_sel, v_sel, k_win, v_win, k_cmp_src, v_cmp_src, gate_logits;
};

void set_append(DecodeAttention& p, const LaunchInputs& x, const NsaConfig& config,
                const at::Tensor& half_turns) {
  p.append.k_sel = strided(x.k_sel), p.append.v_sel = strided(x.v_sel);
  p.append.k_win = strided(x.k_win), p.append.v_win = strided(x.v_win);
  p.append.k_cmp_src = strided(x.k_cmp_src), p.append.v_cmp_src = strided(x.v_cmp_src);
  if (config.rope != RopeMode::kNone) p.append.half_turns = half_turns.const_data_ptr<double>();
  p.append.rotate_source = config.rope == RopeMode::kBeforePool;
}

/// Outputs [A, S, ...], and where the launch writes them.
DecodeOutputs make_outputs(DecodeAttention& p, const NsaInputs& tokens, bool with_scores) {
  const auto type = tokens.q.options();
  const auto floats = type.dtype(at::kFloat), ints = type.dtype(at::kInt);
  const int64_t batch = p.batch, count = p.tokens, heads = p.num_heads, kv_heads = p.num_kv_heads,
                n = p.top_n;
  DecodeOutputs out;
  const std::array<at::Tensor*, 3> branches{&out.o_cmp, &out.o_sel, &out.o_win};
  const std::array<at::Tensor*, 3> sums{&out.lse_cmp, &out.lse_sel, &out.lse_win};
  out.o = at::empty({batch, count, heads, p.v_head_dim}, type);
  for (size_t i = 0; i < branches.size(); ++i) {
    *branches[i] = at::empty_like(out.o);
    *sums[i] = at::empty({batch, count, heads}, floats);
    p.branch_out[i] = branches[i]->mutable_data_ptr();
    p.lse[i] = sums[i]->mutable_data_ptr<float>();
  }
  out.q_rot = at::empty({batch, count, heads, p.qk_head_dim}, type);
  out.gates = at::empty({batch, count, p.gate_heads, 3}, floats);
  out.block_idx = at::empty({batch, count, kv_heads, n}, ints);
  out.ranges = at::empty({batch, count, kv_heads, n, 2}, ints);
  out.reads = at::empty({batch, count, kv_heads, 3}, type.dtype(at::kLong));
  p.out = out.o.mutable_data_ptr();
  p.q_rotated = out.q_rot.mutable_data_ptr();
  p.gates = out.gates.mutable_data_ptr<float>();
  p.block_idx = out.block_idx.mutable_data_ptr<int32_t>();
  p.ranges = out.ranges.mutable_data_ptr<int32_t>();
  p.reads = out.reads.mutable_data_ptr<int64_t>();
  if (with_scores) {
    out.scores = at::empty({batch, count, kv_heads, p.score_width}, floats);
    p.scores = out.scores.mutable_data_ptr<float>();
  }
  return out;
}

void record_one_launch(bool appends) {
  if (appends) record_stage("append", "fused");
  for (const char* stage : {"cmp_attn", "select", "ranges", "sel_attn", "win_attn", "gate"})
    record_stage(stage, "fused");
}

}  // namespace

std::string LayerCache::one_launch_obstacle(const NsaInputs& tokens, const Active& active,
                                            const NsaOptions& options) const {
  const NsaOptions wanted = options.effective();
  if (wanted.sel != SelBackend::kFused || wanted.cmp != BranchBackend::kFused ||
      wanted.win != BranchBackend::kFused) {
    return "a step is one launch only where all three branches are to be fused";
  }
  const KernelChoice kernel = step_kernel(config_, tokens.q);
  if (!kernel.runs()) return kernel.obstacle;
  if (needs_gradient(tokens)) return "the one launch of a decode step has no backward pass";
  if (window_.kv.k.scalar_type() != window_.kv.type) return "the cache keeps wider rows";
  if (options.block_idx.defined()) return "the one launch of a decode step selects by itself";
  if (tokens.gate_logits.scalar_type() != tokens.q.scalar_type()) {
    return "gate logits and q have different types";
  }
  if (selected_.kv.k.size(0) > INT32_MAX || active.last >= INT32_MAX / 2) {
    return "a cache has more rows than fit 32 bits";
  }
  DecodeAttention p;
  set_sizes(p, config_, tokens);
  p.appends = kernel_appends(config_);
  if (p.tokens > 1 && !p.appends) {
    return "several tokens are one launch only where the kernel appends them";
  }
  p.window = ring(window_);
  p.append.source = ring(source_);
  p.max_tokens = static_cast<int>(longest_room(active));
  const char* reason = kernels::unsupported_reason(p);
  return reason == nullptr ? "" : reason;
}

// Steps of about the same length are cut alike, and a captured step has room to grow.
int64_t LayerCache::longest_room(const Active& active) const {
  int64_t most = active.last + 1;
  for (const int64_t id : active.ids)
    most = std::max(most, std::min(capacity_, selected_.room(id)));
  return most;
}

DecodeOutputs LayerCache::step_in_one_launch(const NsaInputs& tokens, Active& active,
                                             const NsaOptions& options) {
  const c10::cuda::CUDAGuard guard(tokens.q.device());
  const bool appends = kernel_appends(config_), captured = is_capturing();
  TORCH_CHECK(!captured || appends,
              "nsa::DecodeCache: a step can be captured only where the kernel appends: phi must be "
              "mean and rope before_pool with interleaved pairs or none, got phi ",
              to_string(config_.phi), ", rope ", to_string(config_.rope), ", rope_pairs ",
              to_string(config_.rope_pairs));
  at::Tensor q = tokens.q;
  if (!appends) {
    active.t = num_tokens_device_.index_select(0, active.sequence);
    const RotatedTokens rotated = rotate_tokens(tokens, active.t.unsqueeze(1), config_);
    append(tokens, rotated, active);
    emit(tokens, active);
    q = rotated.q;
  } else if (!captured && lengths_known_) {
    grow(active.ids, tokens.q.size(1));
    if (!grow_blocks(active.ids, tokens.q.size(1)).empty()) record_stage("compress", "fused");
  }
  const LaunchInputs x{addressable(q),
                       addressable(tokens.k_sel),
                       addressable(tokens.v_sel),
                       addressable(tokens.k_win),
                       addressable(tokens.v_win),
                       addressable(tokens.k_cmp_src),
                       addressable(tokens.v_cmp_src),
                       tokens.gate_logits.contiguous()};
  DecodeAttention p;
  set_sizes(p, config_, tokens);
  p.q = strided(x.q);
  p.gate_logits = x.gate_logits.const_data_ptr();
  if (!active.sequence.is_same(all_sequences_)) {
    p.sequences = active.sequence.const_data_ptr<int64_t>();
  } else {
    if (!captured && lengths_known_) sort_sequences();
    if (order_device_.defined() && num_sequences() > 1)
      p.order = order_device_.const_data_ptr<int32_t>();
  }
  p.num_tokens = num_tokens_device_.mutable_data_ptr<int64_t>();
  p.selected = paged(selected_);
  p.compressed = paged(compressed_);
  p.window = ring(window_);
  p.appends = appends;
  if (appends) {
    set_append(p, x, config_, half_turns_);
    p.append.source = ring(source_);
    p.append.num_blocks = num_blocks_device_.mutable_data_ptr<int64_t>();
    p.append.emission_reads = counters_.emission_reads.mutable_data_ptr<int64_t>();
    p.append.arrivals = arrivals_.mutable_data_ptr<int32_t>();
  }
  p.max_tokens = static_cast<int>(longest_room(active));
  if (captured) captured_room_ = std::min<int64_t>(captured_room_, p.max_tokens);
  const int64_t last = captured ? p.max_tokens - 1 : active.last;
  p.score_width = static_cast<int>(last / config_.sel_block_size + 1);
  DecodeOutputs out = make_outputs(p, tokens, options.keep_scores);
  const auto stream = c10::cuda::getCurrentCUDAStream(tokens.q.get_device());
  const cudaError_t status = kernels::decode_attention(p, stream);
  TORCH_CHECK(status == cudaSuccess,
              "nsa::DecodeCache: launch failed: ", cudaGetErrorString(status));
  record_one_launch(appends);
  if (!appends) out.q_rot = q;
  return out;
}
#else
std::string LayerCache::one_launch_obstacle(const NsaInputs& tokens, const Active&,
                                            const NsaOptions&) const {
  return step_kernel(config_, tokens.q).obstacle;
}

int64_t LayerCache::longest_room(const Active& active) const { return active.last + 1; }

DecodeOutputs LayerCache::step_in_one_launch(const NsaInputs&, Active&, const NsaOptions&) {
  TORCH_CHECK(false, "nsa::DecodeCache: this build has no CUDA code");
}
#endif

std::vector<int32_t> longest_first(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  return order;
}

// Of long sequences that begin last a launch would wait for the last one.
void LayerCache::sort_sequences() {
  std::vector<int32_t> order = longest_first(num_tokens_);
  const bool as_numbered = std::is_sorted(order.begin(), order.end());
  if (order == order_ || (order_.empty() && as_numbered)) return;  // steps keep it
  put_order(std::move(order));
}

// By a copy, not a kernel: a launch may read the order while the kernel before it still runs.
void LayerCache::put_order(std::vector<int32_t> order) {
  at::Tensor host = at::tensor(order, at::kInt);
  if (all_sequences_.is_cuda()) host = host.pin_memory();
  if (!order_device_.defined()) order_device_ = at::empty_like(all_sequences_, at::kInt);
  order_device_.copy_(host, /*non_blocking=*/true);
  order_ = std::move(order);
}

void LayerCache::before_replay(int64_t new_tokens) {
  const ArgumentCheck check("DecodeCache");
  std::vector<int64_t> all;
  for (int64_t id = 0; id < num_sequences(); ++id) {
    const int64_t want = num_tokens(id) + new_tokens;
    const int64_t room = std::min({capacity_, selected_.room(id), captured_room_});
    if (want > room) {
      check.fail("tokens of sequence " + std::to_string(id),
                 "at most the reserved " + std::to_string(room), std::to_string(want));
    }
    all.push_back(id);
  }
  grow(all, new_tokens);
  grow_blocks(all, new_tokens);
  sort_sequences();
}

}  // namespace nsa
