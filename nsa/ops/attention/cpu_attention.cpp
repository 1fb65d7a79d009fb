#include "nsa/ops/attention/cpu_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/ops/cpu/inner_loops/kernel_table.h"
#include "nsa/ops/cpu/panel_attention.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What a node needs of a call beside tensors.
struct CpuCall : torch::CustomClassHolder {
  CpuCall(const KeyMask& m, double s, const char* name)
      : kind(m.kind),
        first_position(m.first_position),
        extent(m.extent),
        stride(m.stride),
        scale(s),
        stage(std::string(name) + ".backward"),
        record(current_record()) {}
  KeyMask mask(const at::Tensor& ranges) const {
    return {kind, first_position, extent, stride, ranges};
  }

  KeyMask::Kind kind;
  int64_t first_position, extent, stride;
  double scale;
  std::string stage;
  c10::intrusive_ptr<RunRecord> record;
};

struct CpuNode : torch::autograd::Function<CpuNode> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const KeyMask& mask, double scale,
                               const char* stage, const NsaConfig* selection) {
    cpu::PanelSelection r;
    if (selection == nullptr) {
      r.attention = cpu::attend_panels(q, k, v, mask, scale);
    } else {
      r = cpu::attend_and_select(q, k, v, *selection, mask.first_position, scale);
    }
    ctx->save_for_backward({q, k, v, mask.ranges, r.attention.softmax});
    ctx->saved_data["call"] =
        c10::IValue::make_capsule(c10::make_intrusive<CpuCall>(mask, scale, stage));
    ctx->set_materialize_grads(false);
    variable_list result{r.attention.out.to(q.scalar_type()), r.attention.lse};
    if (selection == nullptr) return result;
    ctx->mark_non_differentiable({r.block_idx, r.ranges});
    result.insert(result.end(), {r.block_idx, r.ranges});
    return result;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::attention: double backward is not supported; detach the gradient first");
    const auto holder = ctx->saved_data["call"].toCapsule();
    const auto& call = static_cast<const CpuCall&>(*holder);
    const NvtxRange range(("nsa." + call.stage).c_str());
    const RunRecordScope scope(call.record);
    record_stage(call.stage.c_str(), "cpu", cpu_kernel_detail());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const at::Tensor d_out =
        grads[0].defined() ? grads[0]
                           : at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
    cpu::PanelGradients g = cpu::attend_panels_backward(q, k, v, saved[4], d_out, grads[1],
                                                        call.mask(saved[3]), call.scale);
    return {g.q, g.k, g.v, {}, {}, {}, {}};
  }
};

}  // namespace

std::string cpu_kernel_obstacle(const at::Tensor& q) {
  if (!q.is_cpu()) return "the kernel runs on CPUs only";
  const at::ScalarType type = q.scalar_type();
  if (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) return "";
  return "the kernel takes float, bfloat16 and half only";
}

CpuAttention cpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const KeyMask& mask, double scale, const char* stage,
                           const NsaConfig* selection) {
  KeyMask own = mask;
  if (own.ranges.defined()) own.ranges = own.ranges.contiguous();
  const variable_list r = CpuNode::apply(q, k, v, own, scale, stage, selection);
  if (selection == nullptr) return {r[0], r[1], {}, {}};
  return {r[0], r[1], r[2], r[3]};
}

CpuGradients cpu_attention_gradients(const CpuBackwardInputs& in, const KeyMask& mask, double scale,
                                     const char* stage) {
  record_stage((std::string(stage) + ".backward").c_str(), "cpu", cpu_kernel_detail());
  KeyMask own = mask;
  if (own.ranges.defined()) own.ranges = own.ranges.contiguous();
  // exp(logit - lse) is the probability; a row that attends nothing has {0, 0}.
  const at::Tensor none = in.lse.eq(-std::numeric_limits<double>::infinity());
  const at::Tensor softmax =
      at::stack({in.lse.masked_fill(none, 0.0), none.logical_not().to(at::kFloat)}, -1);
  const cpu::PanelGradients g =
      cpu::attend_panels_backward(in.q, in.k, in.v, softmax, in.d_out, {}, own, scale);
  return {g.q, g.k, g.v};
}

std::string cpu_kernel_detail() { return to_string(cpu::instruction_set()); }

}  // namespace nsa
