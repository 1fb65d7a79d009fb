#include "nsa/layer/fused/fused_call.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <optional>
#include <tuple>
#include <utility>

#include "nsa/diagnostics/run_record.h"
#include "nsa/layer/batched.h"
#include "nsa/layer/fused/fused_gradients.h"
#include "nsa/layer/fused/fused_tokens.h"
#include "nsa/layer/fused/split_projection.h"
#include "nsa/ops/attention/fused_interval.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/compress/compress.h"
#include "nsa/ops/gate/fused_combine.h"
#include "nsa/ops/selected/backends.h"

namespace nsa {

#ifdef NSA_WITH_CUDA
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// K (or V) of compression, selection and window that are one tensor share their gradient: the
/// first place of each. `pooled` false: the first one is no input here.
using Owners = std::array<int64_t, 3>;
Owners owners_of(const at::Tensor& cmp, const at::Tensor& sel, const at::Tensor& win, bool pooled) {
  if (!pooled) return {0, 1, win.is_same(sel) ? 1 : 2};
  return {0, sel.is_same(cmp) ? 0 : 1, win.is_same(cmp) ? 0 : win.is_same(sel) ? 1 : 2};
}

/// State of a backward pass besides tensors.
struct CallPlan : torch::CustomClassHolder {
  NsaConfig config;
  NsaOptions options;
  BranchKernels kernels;
  bool pooled = false;  ///< the sources of compression are inputs, else its results
  Owners keys{}, values{};
  ColumnPlaces places;  ///< of q and the keys and values of the branches; their gradients lie alike
  RunRecordPtr record;
  at::Tensor dropped_ids;  ///< of a given block_idx, which the forward pass counts

  /// The outputs of the branches. The node gives them up as soon as its backward pass has them,
  /// where the graph is not kept: otherwise they would take their memory to its end.
  void save(const SavedCall& call) {
    keeps_two_ = call.keeps_two;
    // Without their history, which would hold the node.
    for (size_t i = 0; i < 3; ++i) outputs_[i] = {call.out[i].detach(), /*is_output=*/false};
  }
  SavedCall take(const variable_list& saved) {
    std::array<at::Tensor, 3> out;
    for (size_t i = 0; i < 3; ++i) {
      out[i] = outputs_[i].unpack();
      if (!torch::autograd::get_current_graph_task_keep_graph()) outputs_[i].reset_data();
    }
    return SavedCall::from(saved, std::move(out), keeps_two_);
  }

 private:
  std::array<torch::autograd::SavedVariable, 3> outputs_;
  bool keeps_two_ = false;
};

/// Outputs of the node, in order; the last three only where they are no inputs.
enum Output {
  kO,
  kOCmp,
  kOSel,
  kOWin,
  kLseCmp,
  kLseSel,
  kLseWin,
  kGates,
  kBlockIdx,
  kRanges,
  kKCmp,
  kVCmp,
  kQRot,
  kOutputs
};

void add_to(at::Tensor& sum, const at::Tensor& more) {
  if (more.defined()) sum = sum.defined() ? sum + more : more;
}

/// Collects the gradients of a node's inputs, and which part each of them is.
class PartList {
 public:
  std::vector<GradientParts> parts;

  /// The gradients of K or of V of the three branches, in parts like `empty`; the place of each in
  /// `parts`, -1 where it has none or another place owns it.
  std::array<int64_t, 3> add(const std::array<at::Tensor, 3>& gradients, const Owners& owners,
                             bool pooled, const GradientParts& empty) {
    std::array<int64_t, 3> part_of{-1, -1, -1};
    for (size_t i = pooled ? 0 : 1; i < 3; ++i) {
      if (!gradients[i].defined()) continue;
      int64_t& part = part_of[static_cast<size_t>(owners[i])];
      if (part < 0) {
        part = static_cast<int64_t>(parts.size());
        parts.push_back(empty);
      }
      GradientParts& one = parts[static_cast<size_t>(part)];
      if (i == 0) {
        one.blocks = gradients[i];
      } else {
        one.terms.push_back(gradients[i]);
      }
    }
    return part_of;
  }
};

/// Room for the gradients of all inputs side by side, where these lie so; else undefined.
at::Tensor room_side_by_side(const CallPlan& plan, const at::Tensor& q) {
  if (plan.places.width == 0) return {};
  return at::empty({q.size(0), q.size(1), plan.places.width}, q.options());
}

/// The columns of input `i`: q, K and V of compression, selection, window.
at::Tensor columns_of(const CallPlan& plan, const at::Tensor& room, size_t i, int64_t num_heads,
                      int64_t head_dim) {
  return room.narrow(-1, plan.places.first[i], num_heads * head_dim)
      .unflatten(-1, {num_heads, head_dim});
}

/// Gives every gradient its columns, where all seven are wanted.
void lay_side_by_side(const CallPlan& plan, const at::Tensor& room, const Owners& keys,
                      const Owners& values, std::vector<GradientParts>& parts) {
  if (parts.size() != plan.places.first.size()) return;
  const std::array<int64_t, 7> part_of{0,         keys[0], values[0], keys[1],
                                       values[1], keys[2], values[2]};
  for (size_t i = 0; i < part_of.size(); ++i) {
    GradientParts& one = parts[static_cast<size_t>(part_of[i])];
    one.out = columns_of(plan, room, i, one.num_heads, one.head_dim);
  }
}

/// A plan without a place for gradients to lie side by side. `in` has the results of compression in
/// the place of its sources where these are not `pooled`.
c10::intrusive_ptr<CallPlan> plan_of(const NsaInputs& in, const NsaConfig& config,
                                     const NsaOptions& options, const BranchKernels& kernels,
                                     bool pooled) {
  auto plan = c10::make_intrusive<CallPlan>();
  plan->config = config;
  plan->options = options;
  plan->kernels = kernels;
  plan->pooled = pooled;
  plan->keys = owners_of(in.k_cmp_src, in.k_sel, in.k_win, pooled);
  plan->values = owners_of(in.v_cmp_src, in.v_sel, in.v_win, pooled);
  plan->record = current_record();
  return plan;
}

/// Gradients of the inputs but the logits. `own`: the terms are not shared and may be overwritten.
variable_list joined(const CallPlan& plan, const SavedCall& s, const BranchGradients& g,
                     const at::Tensor& room, bool own) {
  const NsaConfig& config = plan.config;
  const bool rotated = config.rope != RopeMode::kNone;
  PartList list;
  if (!g.q.empty())
    list.parts.push_back({g.q,
                          {},
                          config.num_heads,
                          config.qk_head_dim,
                          rotated,
                          own,
                          g.q_out,
                          g.q_out.defined() ? g.q_joined : -1});
  const auto keys = list.add({g.k_cmp, g.k_sel, g.k_win}, plan.keys, plan.pooled,
                             {{}, {}, config.num_kv_heads, config.qk_head_dim, rotated, own});
  const auto values = list.add({g.v_cmp, g.v_sel, g.v_win}, plan.values, plan.pooled,
                               {{}, {}, config.num_kv_heads, config.v_head_dim, false, own});
  if (plan.places.width > 0)
    lay_side_by_side(plan, room.defined() ? room : room_side_by_side(plan, s.q), keys, values,
                     list.parts);
  const variable_list found = join_gradients(list.parts, config, s.q, s.packed);
  const auto at = [&](int64_t i) { return i < 0 ? at::Tensor() : found[static_cast<size_t>(i)]; };
  variable_list result{at(g.q.empty() ? -1 : 0),
                       at(keys[0]),
                       at(values[0]),
                       at(keys[1]),
                       at(values[1]),
                       at(keys[2]),
                       at(values[2]),
                       at::Tensor()};
  if (!plan.pooled) result[1] = g.k_cmp, result[2] = g.v_cmp;
  return result;
}

/// Gradients of the eight inputs from those of the outputs. `branches` false: of the logits only.
variable_list input_gradients(const CallPlan& plan, SavedCall& s, variable_list grads,
                              bool branches) {
  const NsaConfig& config = plan.config;
  grads.resize(kOutputs);
  bool only_o = true;
  for (size_t i = 0; i < grads.size(); ++i) only_o = only_o && (i == kO || !grads[i].defined());
  s.one_key = plan.keys[1] == plan.keys[2] && plan.values[1] == plan.values[2];
  at::Tensor room, q_out;  // not before they are needed
  const bool by_kernels = only_o && grads[kO].defined();
  std::optional<at::AutoDispatchBelowADInplaceOrView> below;
  if (by_kernels) below.emplace();  // operators are differentiated themselves
  if (by_kernels && branches && first_joined(s, config, plan.kernels) < s.q.size(1))
    room = room_side_by_side(plan, s.q);
  if (room.defined()) q_out = columns_of(plan, room, 0, config.num_heads, config.qk_head_dim);
  BranchGradients g = by_kernels ? gradients_by_kernels(s, config, plan.kernels,
                                                        grads[kO].contiguous(), branches, q_out)
                                 : gradients_by_operators(s, config, grads);
  if (grads[kQRot].defined()) g.q.push_back(grads[kQRot]);
  add_to(g.k_cmp, grads[kKCmp]);
  add_to(g.v_cmp, grads[kVCmp]);
  variable_list result = branches ? joined(plan, s, g, room, only_o) : variable_list(8);
  result[7] = g.logits;
  return result;
}

/// Without what autograd costs in every operator. What is saved must be detached outside: below
/// ADInplaceOrView a detached tensor has a version of its own, so overwriting would go unnoticed.
Steps composed(const NsaInputs& in, const CallPlan& plan) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return compose_attention(in, plan.config, plan.options, /*compressed=*/!plan.pooled,
                           /*keeps_two=*/!plan.options.keep_branches);
}

struct FusedCall : torch::autograd::Function<FusedCall> {
  /// k_cmp and v_cmp are the sources of compression, or its results when not plan->pooled.
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k_cmp,
                               const at::Tensor& v_cmp, const at::Tensor& k_sel,
                               const at::Tensor& v_sel, const at::Tensor& k_win,
                               const at::Tensor& v_win, const at::Tensor& logits,
                               const c10::intrusive_ptr<CallPlan>& plan) {
    const NsaInputs in{q, k_cmp, v_cmp, k_sel, v_sel, k_win, v_win, logits, {}, {}, {}};
    const Steps steps = composed(in, *plan);
    NsaOutputs out = steps.out;
    plan->dropped_ids = out.dropped_ids;
    const SavedCall saved = SavedCall::of(steps, in);
    ctx->save_for_backward(saved.list());
    plan->save(saved);
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    ctx->set_materialize_grads(false);
    // A node has no undefined outputs.
    if (saved.keeps_two) out.o_cmp = out.o_sel = out.o_win = at::empty({0}, out.o.options());
    ctx->mark_non_differentiable({out.block_idx, out.ranges});
    variable_list results{out.o,       out.o_cmp,   out.o_sel, out.o_win,     out.lse_cmp,
                          out.lse_sel, out.lse_win, out.gates, out.block_idx, out.ranges};
    if (plan->pooled) results.insert(results.end(), {out.k_cmp, out.v_cmp});
    if (plan->config.rope != RopeMode::kNone) results.push_back(out.q_rot);
    return results;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::nsa_attention: double backward is not supported; detach the gradient first");
    const auto plan =
        c10::static_intrusive_pointer_cast<CallPlan>(ctx->saved_data["plan"].toCapsule());
    const RunRecordScope scope(plan->record);
    SavedCall s = plan->take(ctx->get_saved_variables());
    // Those that are no outputs of this node have no gradient here.
    if (!plan->pooled) grads.insert(grads.begin() + kKCmp, 2, at::Tensor());
    bool branches = false;
    for (size_t i = 0; i < 7; ++i) branches = branches || ctx->needs_input_grad(i);
    variable_list result = input_gradients(*plan, s, std::move(grads), branches);
    result.resize(9);
    return result;
  }
};

bool asks_for_kernels(const NsaOptions& options) {
  return options.cmp == BranchBackend::kFused && options.win == BranchBackend::kFused &&
         options.sel == SelBackend::kFused && !options.keep_scores && !options.strict_asserts;
}

/// The kernels of all branches where they cover a call, forward and backward. `compressed`:
/// k_cmp_src and v_cmp_src are the results of compression.
std::optional<BranchKernels> kernels_of_call(const NsaInputs& in, const NsaConfig& config,
                                             int64_t num_ids, bool compressed) {
  if (!tokens_by_kernel(in, config) || !combines_by_kernel(in.v_sel, in.gate_logits))
    return std::nullopt;
  const at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor k_cmp = in.k_cmp_src, v_cmp = in.v_cmp_src;
  if (!compressed) {  // sizes are asked for, so slices stand for what is not computed yet
    const int64_t blocks = config.num_compressed(in.q.size(1));
    k_cmp = k_cmp.narrow(1, 0, blocks), v_cmp = v_cmp.narrow(1, 0, blocks);
  }
  const at::Tensor ranges = at::empty({0, 0, 0, num_ids, 2}, at::kInt);
  BranchKernels chosen;
  chosen.cmp = choose_interval_kernel(in.q, k_cmp, v_cmp, compressed_mask(config), &config);
  if (!chosen.cmp.runs()) return std::nullopt;
  if (config.window > 0) {
    chosen.win = choose_interval_kernel(in.q, in.k_win, in.v_win, window_mask(config));
    if (!chosen.win.runs()) return std::nullopt;
  }
  chosen.sel = choose_selected_kernels(
                   {in.q, in.k_sel, in.v_sel, ranges, 0, config.sel_scale(), config.sel_block_size})
                   .backward;  // runs only where the forward kernel does
  if (!chosen.sel.runs()) return std::nullopt;
  return chosen;
}

}  // namespace

std::optional<BranchKernels> choose_one_call(const NsaInputs& in, const NsaConfig& config,
                                             const NsaOptions& options) {
  if (!asks_for_kernels(options) || !needs_gradient({in.q, in.k_cmp_src, in.v_cmp_src, in.k_sel,
                                                     in.v_sel, in.k_win, in.v_win, in.gate_logits}))
    return std::nullopt;
  const int64_t num_ids = options.block_idx.defined() ? options.block_idx.size(-1) : config.top_n;
  return kernels_of_call(in, config, num_ids, /*compressed=*/false);
}

variable_list gradients_of_saved(const NsaInputs& in, const NsaConfig& config, SavedCall saved,
                                 const BranchKernels& kernels, const at::Tensor& d_o, bool pooled,
                                 bool branches) {
  const auto plan = plan_of(in, config, {}, kernels, pooled);
  variable_list grads(kOutputs);
  grads[kO] = d_o;
  return input_gradients(*plan, saved, std::move(grads), branches);
}

variable_list gradients_of_steps(const NsaInputs& in, const NsaConfig& config, Steps steps,
                                 const at::Tensor& d_o, bool compressed, bool branches) {
  if (!compressed && !sources_are_pooled(config)) return {};
  const auto kernels = kernels_of_call(in, config, steps.out.ranges.size(3), compressed);
  if (!kernels) return {};
  return gradients_of_saved(in, config, SavedCall::of(std::move(steps), in), *kernels, d_o,
                            /*pooled=*/!compressed, branches);
}

NsaOutputs fused_call(const NsaInputs& in, const NsaConfig& config, const NsaOptions& options,
                      const BranchKernels& kernels) {
  const bool pooled = sources_are_pooled(config);
  const auto plan = plan_of(in, config, options, kernels, pooled);
  at::Tensor k_cmp = in.k_cmp_src, v_cmp = in.v_cmp_src;
  if (!pooled)
    std::tie(k_cmp, v_cmp) = compress(in.k_cmp_src, in.v_cmp_src, in.phi_k, in.phi_v, config);
  if (pooled)
    plan->places =
        column_places({in.q, in.k_cmp_src, in.v_cmp_src, in.k_sel, in.v_sel, in.k_win, in.v_win});
  const variable_list r = FusedCall::apply(in.q, k_cmp, v_cmp, in.k_sel, in.v_sel, in.k_win,
                                           in.v_win, in.gate_logits, plan);
  NsaOutputs out;
  out.o = r[kO];
  if (options.keep_branches || config.gate == GateActivation::kNone)
    out.o_cmp = r[kOCmp], out.o_sel = r[kOSel], out.o_win = r[kOWin];
  out.lse_cmp = r[kLseCmp], out.lse_sel = r[kLseSel], out.lse_win = r[kLseWin];
  out.gates = r[kGates], out.block_idx = r[kBlockIdx], out.ranges = r[kRanges];
  out.k_cmp = pooled ? r[kKCmp] : k_cmp;
  out.v_cmp = pooled ? r[kVCmp] : v_cmp;
  out.q_rot = config.rope == RopeMode::kNone ? in.q : r.back();
  out.dropped_ids = plan->dropped_ids;
  return out;
}
#else
std::optional<BranchKernels> choose_one_call(const NsaInputs&, const NsaConfig&,
                                             const NsaOptions&) {
  return std::nullopt;
}

std::vector<at::Tensor> gradients_of_steps(const NsaInputs&, const NsaConfig&, Steps,
                                           const at::Tensor&, bool, bool) {
  return {};
}

NsaOutputs fused_call(const NsaInputs&, const NsaConfig&, const NsaOptions&, const BranchKernels&) {
  TORCH_CHECK(false, "nsa::nsa_attention: this build has no CUDA code");
}
#endif

}  // namespace nsa
