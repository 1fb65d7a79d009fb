// One projection of q, k and v as the input of a call.
#include <ATen/ATen.h>

#include <sstream>

#include "nsa/api/attention_call.h"
#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

struct HeadDims {
  int64_t qk = 0, v = 0;
};

/// dk and dv of a projection of `width` columns.
HeadDims head_dims(const QkvColumns& columns, int64_t width) {
  const int64_t q_and_k = columns.num_heads + columns.num_kv_heads;
  const int64_t of_values = columns.num_kv_heads * columns.v_head_dim.value_or(0);
  const int64_t divisor = columns.v_head_dim ? q_and_k : q_and_k + columns.num_kv_heads;
  const int64_t qk = (width - of_values) / divisor;
  if (qk < 1 || qk * divisor != width - of_values) {
    std::ostringstream want;
    want << "[B, S, num_heads * dk + num_kv_heads * (dk + dv)] for num_heads = "
         << columns.num_heads << ", num_kv_heads = " << columns.num_kv_heads << ", dv = ";
    columns.v_head_dim ? want << *columns.v_head_dim : want << "dk";
    ArgumentCheck("attention")
        .fail("qkv", want.str(),
              "width " + std::to_string(width) + ", for which dk is no whole number");
  }
  return {qk, columns.v_head_dim.value_or(qk)};
}

}  // namespace

void AttentionCall::unpack() {
  if (!columns || tensors[1].defined()) return;
  const ArgumentCheck argument("attention");
  const at::Tensor qkv = tensors[0];
  argument.defined("qkv", qkv);
  argument.rank("qkv", qkv, 3, "[B, S, num_heads * dk + num_kv_heads * (dk + dv)]");
  argument.at_least("num_heads", columns->num_heads, 1);
  argument.at_least("num_kv_heads", columns->num_kv_heads, 1);
  if (columns->v_head_dim) argument.at_least("v_head_dim", *columns->v_head_dim, 1);
  const HeadDims dims = head_dims(*columns, qkv.sym_size(-1).guard_int(__FILE__, __LINE__));
  int64_t first = 0;
  const auto next = [&](int64_t heads, int64_t dim) {
    const at::Tensor part = qkv.narrow(-1, first, heads * dim).unflatten(-1, {heads, dim});
    first += heads * dim;
    return part;
  };
  tensors[0] = next(columns->num_heads, dims.qk);
  tensors[1] = next(columns->num_kv_heads, dims.qk);
  tensors[2] = next(columns->num_kv_heads, dims.v);
  take_tensor_sizes();
}

}  // namespace nsa
