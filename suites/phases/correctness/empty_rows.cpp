// Selected attention of rows without any key: exactly 0 and lse -inf, forward and backward finite,
// and what no row attends cannot leak, whatever it holds.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "nsa/reference/branches/sel_attention.h"
#include "suites/compare/compare.h"
#include "suites/compare/generators.h"
#include "suites/conformance/convert.h"
#include "suites/conformance/dense_formulation.h"
#include "suites/phases/attention_under_test.h"

namespace suites {
namespace {

using at::Tensor;

/// Inputs of one call.
struct Rows {
  Tensor q, k, v;   ///< [1,S,4,8], [1,S,2,8], [1,S,2,8]
  Tensor ranges;    ///< [1,S,2,2,2] int32
  Tensor empty;     ///< [S] bool
  Tensor attended;  ///< [1,S,2,S] bool
};

/// Every third row is empty; the others attend two intervals, [0, 4) and their own last tokens,
/// except the tokens 4..7, which no row attends: they hold NaN and Inf.
Rows make_rows(int64_t tokens, at::ScalarType type, at::Device device, uint64_t seed) {
  at::Generator g = make_generator(seed);
  const auto draw = [&](int64_t heads) {
    return make_data({1, tokens, heads, 8}, DataKind::kNormal, g, type).to(device);
  };
  Rows rows;
  rows.q = draw(4);
  rows.k = draw(2);
  rows.v = draw(2);
  const Tensor t = at::arange(tokens, at::kInt);
  rows.empty = t.remainder(3) == 1;
  const Tensor zero = at::zeros_like(t), four = at::full_like(t, 4), end = t + 1;
  const Tensor first = at::stack({zero, at::minimum(four, end)}, -1);
  const Tensor from = at::maximum(at::full_like(t, 8), t - 5);
  const Tensor last = at::where((from < end).unsqueeze(-1), at::stack({from, end}, -1),
                                at::zeros({tokens, 2}, at::kInt));
  const Tensor both = at::where(rows.empty.view({-1, 1, 1}), at::zeros({1, 1, 1}, at::kInt),
                                at::stack({first, last}, 1));
  rows.ranges =
      both.view({1, tokens, 1, 2, 2}).expand({1, tokens, 2, 2, 2}).contiguous().to(device);
  const Tensor s = at::arange(tokens).view({1, 1, -1});
  const Tensor inside =
      (s >= both.select(-1, 0).unsqueeze(-1)).logical_and(s < both.select(-1, 1).unsqueeze(-1));
  rows.attended = inside.any(1).view({1, tokens, 1, tokens}).expand({1, tokens, 2, tokens});
  rows.attended = rows.attended.to(device);
  rows.empty = rows.empty.to(device);
  for (Tensor* x : {&rows.k, &rows.v}) {
    x->narrow(1, 4, 2).fill_(std::numeric_limits<double>::quiet_NaN());
    x->narrow(1, 6, 2).fill_(std::numeric_limits<double>::infinity());
  }
  return rows;
}

class EmptyRows {
 public:
  EmptyRows(const PhaseCase& one, at::ScalarType type, nsa::SelBackend backend)
      : one_(one),
        type_(type),
        backend_(backend),
        rows_(make_rows(one.args.get_int("S", 48, 16), type, one.device, one.seed())) {}

  void run(const SelAttnFunction& sel_attn) {
    const Tensor q = rows_.q.clone().requires_grad_(true), k = rows_.k.clone().requires_grad_(true),
                 v = rows_.v.clone().requires_grad_(true);
    const nsa::RunRecordPtr record = c10::make_intrusive<nsa::RunRecord>();
    const nsa::RunRecordScope scope(record);
    const auto [out, lse] = sel_attn(q, k, v, rows_.ranges, {.backend = backend_});
    one_.emitter.check(path_check(one_, record->rows(), nsa::to_string(backend_),
                                  nsa::to_string(backend_) + "_" + dtype_name(type_)));
    judge_forward(out.detach(), lse.detach());
    const auto gradients =
        torch::autograd::grad({out}, {q, k, v}, {at::ones_like(out)}, std::nullopt, false, true);
    judge_backward(gradients);
  }

 private:
  void emit(const std::string& what, bool ok, const char* code, const std::string& detail) {
    one_.emitter.check({.case_id = one_.id,
                        .id = what + "/" + nsa::to_string(backend_) + "/" + dtype_name(type_),
                        .ok = ok,
                        .code = ok ? "" : code,
                        .detail = detail});
  }

  void judge_forward(const Tensor& out, const Tensor& lse) {
    const Tensor empty_out = out.index_select(1, rows_.empty.nonzero().flatten());
    const Tensor empty_lse = lse.index_select(1, rows_.empty.nonzero().flatten());
    const bool zero = (empty_out == 0).all().item<bool>(),
               none = (empty_lse == -INFINITY).all().item<bool>();
    emit("empty/out", zero && empty_out.numel() > 0, code::kInvariant,
         std::to_string(empty_out.size(1)) + " empty rows, out " + (zero ? "0" : "not 0"));
    emit("empty/lse", none && empty_lse.numel() > 0, code::kInvariant,
         std::string("lse ") + (none ? "-inf" : "not -inf"));
    const bool finite = at::isfinite(out).all().item<bool>();
    emit("finite/out", finite, "NON_FINITE",
         finite ? "NaN and Inf of tokens nobody attends stay out" : "out is not finite");
    judge_values(out);
  }

  void judge_values(const Tensor& out) {
    const auto oracle =
        nsa::reference::sel_attention(to_reference(rows_.q), to_reference(clean(rows_.k)),
                                      to_reference(clean(rows_.v)), to_reference_ids(rows_.ranges));
    CompareContext context;
    context.plain = dense_attention(rows_.q, clean(rows_.k), clean(rows_.v), rows_.attended).o;
    const CompareReport report =
        compare(out, from_reference(oracle.o), tolerance("sel_attn", "o_sel", type_), context);
    emit("oracle/out", report.ok, code::kOracleMismatch, report.text);
  }

  /// NaN and Inf replaced by 0. The oracle never loads these tokens; the dense formulation masks
  /// them.
  static Tensor clean(const Tensor& x) { return at::nan_to_num(x, 0, 0, 0); }

  void judge_backward(const std::vector<Tensor>& gradients) {
    const char* names[] = {"d_q", "d_k", "d_v"};
    for (size_t i = 0; i < gradients.size(); ++i) {
      const bool finite = gradients[i].defined() && at::isfinite(gradients[i]).all().item<bool>();
      emit(std::string("finite/") + names[i], finite, "NON_FINITE",
           finite ? "every gradient is finite" : "a gradient is missing or not finite");
    }
    const Tensor d_q = gradients[0].index_select(1, rows_.empty.nonzero().flatten());
    const bool zero = (d_q == 0).all().item<bool>();
    emit("empty/d_q", zero, code::kInvariant,
         std::string("queries of empty rows have gradient ") + (zero ? "0" : "not 0"));
  }

  const PhaseCase& one_;
  at::ScalarType type_;
  nsa::SelBackend backend_;
  Rows rows_;
};

}  // namespace

std::string run_empty_rows(const PhaseCase& one) {
  const SelAttnFunction sel_attn = sel_attn_under_test(one.args);
  const auto backends =
      sel_backends(one.args, "backends", {"masked", "gather", "packed", "varlen"});
  const auto types = one.args.get_list("dtypes", {"fp64", "fp32", "bf16", "fp16"});
  int64_t step = 0;
  for (const std::string& name : types) {
    for (const nsa::SelBackend backend : backends) {
      EmptyRows(one, named_type(name), backend).run(sel_attn);
      one.emitter.beat({.case_id = one.id,
                        .step = ++step,
                        .of = static_cast<int64_t>(types.size() * backends.size()),
                        .at = nsa::to_string(backend) + " " + name});
    }
  }
  return "";
}

}  // namespace suites
