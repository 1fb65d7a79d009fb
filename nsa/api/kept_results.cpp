#include "nsa/api/kept_results.h"

#include <ATen/ATen.h>

#include "nsa/diagnostics/run_record.h"
#include "nsa/layer/cpu_gradients.h"
#include "nsa/layer/fused/fused_call.h"
#include "nsa/layer/fused/packed_call.h"
#include "nsa/layer/packed.h"
#include "nsa/ops/attention/cpu_attention.h"
#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

using Tensors = std::vector<at::Tensor>;

bool rotates(const AttentionCall& call) { return call.config.rope != RopeMode::kNone; }

/// Whether the selected and the window branch have the same keys.
bool one_key(const AttentionCall& call) {
  return !call.tensors[6].defined() && !call.tensors[8].defined();
}

constexpr size_t kSteps = 12;  ///< results that a call can keep
constexpr size_t kSelected = 7;

/// Whether step i is an argument of the call, the same as another, or made again of the output.
bool is_left_out(const AttentionCall& call, size_t i) {
  if (i == kSelected) return keeps_two(call);
  if (i < 3) return !rotates(call) || (i == 2 && one_key(call));
  return i < 5 && call.compressed();
}

Steps steps_from(const AttentionCall& call, const NsaInputs& in, Tensors kept) {
  auto next = kept.begin();
  const auto take = [&] { return std::move(*next++); };
  Steps steps;
  NsaOutputs& out = steps.out;
  out.q_rot = rotates(call) ? take() : in.q;
  steps.k_sel = rotates(call) ? take() : in.k_sel;
  steps.k_win = one_key(call) ? steps.k_sel : rotates(call) ? take() : in.k_win;
  out.k_cmp = call.compressed() ? in.k_cmp_src : take();
  out.v_cmp = call.compressed() ? in.v_cmp_src : take();
  size_t step = 5;
  for (at::Tensor* const x :
       {&out.ranges, &out.o_cmp, &out.o_sel, &out.o_win, &out.lse_cmp, &out.lse_sel, &out.lse_win})
    if (!is_left_out(call, step++)) *x = take();
  if (keeps_two(call)) out.o = take();
  return steps;
}

/// Whether the CPU kernels computed the branches (whole_call_options).
bool computed_by_cpu_kernels(const AttentionCall& call) {
  return call.backend == Backend::kAuto && cpu_kernel_obstacle(call.q()).empty();
}

/// Of packed documents, [T, ...]; empty where the forward pass kept nothing.
Tensors gradients_of_documents(const AttentionCall& call, const NsaInputs& in, Tensors kept,
                               const at::Tensor& d_o, bool branches) {
  const auto kernels = packed_kernels(call, /*checks_offsets=*/false);
  if (!kernels) return {};
  Steps steps = steps_from(call, in, std::move(kept));
  for (at::Tensor* const x : {&steps.out.q_rot, &steps.k_sel, &steps.k_win, &steps.out.o})
    if (x->defined() && x->dim() == 3) *x = x->unsqueeze(0);  // an argument of the call
  Tensors found = packed_gradients(in, call.config, std::move(steps), d_o, *kernels, branches);
  for (at::Tensor& x : found)
    if (x.defined()) x = x.squeeze(0);
  return found;
}

size_t num_kept(const AttentionCall& call) {
  size_t count = 0;
  for (size_t i = 0; i < kSteps; ++i) count += is_left_out(call, i) ? 0 : 1;
  return count;
}

}  // namespace

bool keeps_two(const AttentionCall& call) {
  const at::ScalarType type = call.q().scalar_type();
  return call.q().is_cuda() && (type == at::kBFloat16 || type == at::kHalf) &&
         call.backend != Backend::kPlain && call.config.gate != GateActivation::kNone;
}

Tensors kept_results(const AttentionCall& call, const Steps& steps) {
  const NsaOutputs& out = steps.out;
  const std::array<const at::Tensor*, kSteps> all{
      &out.q_rot, &steps.k_sel, &steps.k_win, &out.k_cmp,   &out.v_cmp,   &out.ranges,
      &out.o_cmp, &out.o_sel,   &out.o_win,   &out.lse_cmp, &out.lse_sel, &out.lse_win};
  Tensors kept;
  kept.reserve(kSteps);
  for (size_t i = 0; i < kSteps; ++i)
    if (!is_left_out(call, i)) kept.push_back(all[i]->contiguous());
  return kept;
}

Tensors kept_meta(const AttentionCall& call) {
  const Config& c = call.config;
  const at::Tensor& q = call.q();
  const bool packed = call.cu_seqlens.defined();  // one sequence, blocks as in PackedTables
  const c10::SymInt batch = packed ? c10::SymInt(1) : q.sym_size(0),
                    tokens = q.sym_size(packed ? 0 : 1), stride(c.block_stride);
  const c10::SymInt blocks =
      packed ? tokens / stride : ((tokens - c.block_size + c.block_stride) / stride).max(0);
  const c10::SymInt ids = call.block_idx.defined() ? call.block_idx.sym_size(-1) : c.top_n;
  const at::ScalarType accumulated = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto make = [&](std::vector<c10::SymInt> sizes, at::ScalarType type) {
    return at::empty_symint(sizes, q.options().dtype(type));
  };
  const auto of_type = [&](std::vector<c10::SymInt> sizes) {
    return make(std::move(sizes), q.scalar_type());
  };
  const std::array<std::vector<c10::SymInt>, 5> sources{{
      {batch, tokens, c.num_heads, c.qk_head_dim},
      {batch, tokens, c.num_kv_heads, c.qk_head_dim},
      {batch, tokens, c.num_kv_heads, c.qk_head_dim},
      {batch, blocks, c.num_kv_heads, c.qk_head_dim},
      {batch, blocks, c.num_kv_heads, c.v_head_dim},
  }};
  Tensors kept;
  for (size_t i = 0; i < sources.size(); ++i)
    if (!is_left_out(call, i)) kept.push_back(of_type(sources[i]));
  kept.push_back(make({batch, tokens, c.num_kv_heads, ids, 2}, at::kInt));
  for (size_t branch = 0; branch < 3; ++branch)
    if (!is_left_out(call, 6 + branch))
      kept.push_back(of_type({batch, tokens, c.num_heads, c.v_head_dim}));
  for (int branch = 0; branch < 3; ++branch)
    kept.push_back(make({batch, tokens, c.num_heads}, accumulated));
  return kept;
}

Tensors kept_blanks(const AttentionCall& call) {
  Tensors blanks = kept_meta(call);
  for (at::Tensor& x : blanks) x.zero_();
  return blanks;
}

std::optional<PackedKernels> packed_kernels(const AttentionCall& call, bool checks_offsets) {
  const NsaInputs in = layer_inputs(call);
  const NsaOptions options = whole_call_options(call.backend, call.strict, in.q);
  if (options.sel != SelBackend::kFused || !in.q.is_cuda()) return std::nullopt;
  for (const at::Tensor& x : call.tensors)
    if (x.defined() && x.requires_grad() && at::GradMode::is_enabled()) return std::nullopt;
  const ArgumentCheck check("attention");
  check.rank("cu_seqlens", in.cu_seqlens, 1, "[docs + 1]");
  check.dtype("cu_seqlens", in.cu_seqlens, at::kInt);
  if (checks_offsets && (!call.max_seqlen || in.cu_seqlens.is_cpu())) check_offsets(in);
  const int64_t num_ids = call.block_idx.defined() ? call.block_idx.size(-1) : call.config.top_n;
  PackedKernels kernels = choose_packed(in, call.config, num_ids);
  record_backend("packed", "fused", kernels.obstacle.empty() ? "fused" : "batches", "",
                 kernels.obstacle, /*strict=*/false);
  if (!kernels.obstacle.empty()) return std::nullopt;
  return kernels;
}

Tensors kept_gradients(const AttentionCall& call, Tensors kept, const at::Tensor& d_o,
                       const std::bitset<kCallTensors.size()>& wanted) {
  TORCH_CHECK_VALUE(kept.size() == num_kept(call) + (keeps_two(call) ? 1 : 0),
                    "nsa::attention: kept must be the ", num_kept(call),
                    " results of the forward operator of the same call",
                    keeps_two(call) ? " and its output o behind them" : "", ", got ", kept.size());
  AttentionCall own = call;  // tensors of their own: one given twice has two gradients
  for (at::Tensor& x : own.tensors)
    if (x.defined()) x = x.detach();
  const NsaInputs in = layer_inputs(own);
  bool branches = false;
  for (size_t i = 0; i < kCallTensors.size(); ++i)
    branches = branches || (wanted[i] && std::string_view(kCallTensors[i]) != "gates");
  auto* const gradients_by =
      computed_by_cpu_kernels(own) ? cpu_gradients_of_steps : gradients_of_steps;
  const Tensors found = own.cu_seqlens.defined()
                            ? gradients_of_documents(own, in, std::move(kept), d_o, branches)
                            : gradients_by(in, own.config, steps_from(own, in, std::move(kept)),
                                           d_o, own.compressed(), branches);
  if (found.empty()) return {};
  const std::array<const at::Tensor*, 8> inputs{&in.q,     &in.k_cmp_src,  &in.v_cmp_src,
                                                &in.k_sel, &in.v_sel,      &in.k_win,
                                                &in.v_win, &in.gate_logits};
  Tensors gradients(kCallTensors.size());
  for (size_t i = 0; i < kCallTensors.size(); ++i) {
    if (!wanted[i] || !own.tensors[i].defined()) continue;
    for (size_t place = 0; place < inputs.size(); ++place) {
      if (!inputs[place]->is_same(own.tensors[i])) continue;
      gradients[i] = found[place];
      break;
    }
  }
  return gradients;
}

}  // namespace nsa
