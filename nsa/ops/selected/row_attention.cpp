#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/selected/row_method.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// total[index[i]] += part[i] by a walk in the order of i.
template <typename T>
void add_rows_cpu(at::Tensor& total, const at::Tensor& index, const at::Tensor& part) {
  const at::Tensor rows = part.contiguous();
  const int64_t* place = index.const_data_ptr<int64_t>();
  const T* from = rows.const_data_ptr<T>();
  T* to = total.mutable_data_ptr<T>();
  const int64_t width = total.size(1);
  for (int64_t i = 0; i < index.size(0); ++i, from += width) {
    T* row = to + place[i] * width;
    for (int64_t d = 0; d < width; ++d) row[d] += from[d];
  }
}

/// total[index[i]] += part[i] in a fixed order; no atomics on floats. On a CPU index_put_ would use
/// them and index_add_ takes half a microsecond a row.
void add_rows_(at::Tensor& total, const at::Tensor& index, const at::Tensor& part) {
  if (total.is_cuda()) {
    total.index_put_({index}, part, /*accumulate=*/true);  // sorts on CUDA
  } else if (total.scalar_type() == at::kDouble) {
    add_rows_cpu<double>(total, index, part);
  } else {
    add_rows_cpu<float>(total, index, part);
  }
}

/// Carries the method through the saved data of a node.
struct MethodHolder : torch::CustomClassHolder {
  explicit MethodHolder(const RowMethod& m) : method(m) {}
  const RowMethod& method;
};

template <typename T>
c10::IValue capsule_of(c10::intrusive_ptr<T> holder) {
  return c10::IValue::make_capsule(std::move(holder));
}

RowWorkspace make_workspace(const RowProblem& problem, const std::vector<RowBatch>& batches) {
  int64_t places = 0;
  for (const RowBatch& batch : batches) {
    places = std::max(places, batch.rows.size(0) * batch.longest);
  }
  return {at::empty({places, problem.k.size(1)}, problem.k.options()),
          at::empty({places, problem.v.size(1)}, problem.v.options())};
}

variable_list backward_rows(const SelAttnArgs& args, const RowMethod& method,
                            const variable_list& grads, const at::Tensor& out,
                            const at::Tensor& lse) {
  const RowProblem problem(args);
  const auto options = args.q.options().dtype(problem.heads.sums);
  at::Tensor dq = at::zeros(problem.q.sizes(), args.q.options());
  at::Tensor dk = at::zeros(problem.k.sizes(), options);
  at::Tensor dv = at::zeros(problem.v.sizes(), options);
  const auto rows_of = [&](const at::Tensor& x) {
    return x.defined() ? problem.to_rows(x.dim() == 3 ? x.unsqueeze(-1) : x) : x;
  };
  const RowUpstream all{
      rows_of(grads[0].defined() ? grads[0] : at::zeros(out.sizes(), args.q.options()))
          .to(problem.heads.product_type),
      rows_of(grads[1]), rows_of(method.keeps_output() ? out : at::Tensor()),
      rows_of(method.keeps_output() ? lse : at::Tensor())};
  for (const RowBatch& batch : method.plan(problem)) {
    const auto pick = [&](const at::Tensor& x) {
      return x.defined() ? x.index_select(0, batch.rows) : x;
    };
    const RowGradients g = method.backward(
        problem, batch, {pick(all.d_out), pick(all.d_lse), pick(all.out), pick(all.lse)});
    dq.index_copy_(0, batch.rows, g.q.to(dq.scalar_type()));
    add_rows_(dk, g.index, g.k);
    add_rows_(dv, g.index, g.v);
  }
  const int64_t matrices = problem.heads.batch * problem.heads.num_kv_heads;
  const auto shaped = [&](const at::Tensor& x, const at::Tensor& like) {
    return problem.heads.from_keys(x.view({matrices, problem.num_keys, x.size(1)}), like);
  };
  return {problem.from_rows(dq), shaped(dk, args.k), shaped(dv, args.v)};
}

struct RowAttention : torch::autograd::Function<RowAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const at::Tensor& ranges,
                               int64_t first_position, double scale, const RowMethod* method) {
    const auto [out, lse] = rows_forward({q, k, v, ranges, first_position, scale}, *method);
    ctx->save_for_backward({q, k, v, ranges, out, lse});
    ctx->saved_data["first_position"] = first_position;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["method"] = capsule_of(c10::make_intrusive<MethodHolder>(*method));
    ctx->saved_data["record"] = capsule_of(current_record());
    ctx->set_materialize_grads(false);
    return {out, lse};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::sel_attn: double backward is not supported; detach the gradient first");
    const NvtxRange range("nsa.sel_attn.backward");
    const variable_list saved = ctx->get_saved_variables();
    const auto holder = ctx->saved_data["method"].toCapsule();
    const RowMethod& method = static_cast<const MethodHolder&>(*holder).method;
    const auto record = ctx->saved_data["record"].toCapsule();
    const RunRecordScope scope(c10::static_intrusive_pointer_cast<RunRecord>(record));
    variable_list result = backward_rows(
        {saved[0], saved[1], saved[2], saved[3], ctx->saved_data["first_position"].toInt(),
         ctx->saved_data["scale"].toDouble()},
        method, grads, saved[4], saved[5]);
    result.resize(7);
    return result;
  }
};

}  // namespace

SelAttnResult rows_forward(const SelAttnArgs& args, const RowMethod& method, bool share) {
  const RowProblem problem(args);
  const int64_t rows = problem.q.size(0), group = problem.heads.group_size;
  at::Tensor out = at::zeros({rows, group, args.v.size(3)}, args.q.options());
  at::Tensor lse = at::full({rows, group, 1}, -std::numeric_limits<double>::infinity(),
                            args.q.options().dtype(accumulation_type(args.q.scalar_type())));
  const std::vector<RowBatch> batches = method.plan(problem);
  const RowWorkspace workspace = share ? make_workspace(problem, batches) : RowWorkspace{};
  for (const RowBatch& batch : batches) {
    const RowOutputs r = method.forward(problem, batch, workspace);
    out.index_copy_(0, batch.rows, r.out.to(out.scalar_type()));
    lse.index_copy_(0, batch.rows, r.lse.to(lse.scalar_type()));
  }
  return {problem.from_rows(out), problem.from_rows(lse).squeeze(-1)};
}

std::vector<at::Tensor> rows_backward(const SelAttnArgs& args, const RowMethod& method,
                                      const at::Tensor& d_out, const at::Tensor& d_lse,
                                      const at::Tensor& out, const at::Tensor& lse) {
  return backward_rows(args, method, {d_out, d_lse}, out, lse);
}

SelAttnResult row_attention(const SelAttnArgs& args, const RowMethod& method) {
  const variable_list result = RowAttention::apply(args.q, args.k, args.v, args.ranges,
                                                   args.first_position, args.scale, &method);
  return {result[0], result[1]};
}

}  // namespace nsa
