#include "nsa/decode/step/loaded_selected.h"

#include <ATen/ATen.h>

#include <limits>

#include "nsa/decode/step/loaded_attention.h"
#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/attention/library_attention.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/selected/sel_attn.h"

namespace nsa {
namespace {

/// [A, Hkv] rows that are no padding.
at::Tensor lengths_of(const LoadedKv& kv) { return kv.masked.logical_not().sum(-1); }

/// Every (sequence, KV head) is a sequence of L places, of which flash uses the first ones.
std::pair<at::Tensor, at::Tensor> flash_on_loaded(const at::Tensor& q, const LoadedKv& kv,
                                                  double scale) {
  const int64_t rows = q.size(0) * kv.k.size(1), rows_loaded = kv.k.size(2), heads = q.size(2);
  const int64_t group = heads / kv.k.size(1);
  const at::Tensor length = lengths_of(kv), empty = length.eq(0);
  const at::Tensor starts = at::arange(rows + 1, length.options().dtype(at::kInt));
  PackedSequences x;
  x.q = q.reshape({rows * group, 1, q.size(3)});
  x.k = kv.k.reshape({rows * rows_loaded, 1, kv.k.size(3)});
  x.v = kv.v.reshape({rows * rows_loaded, 1, kv.v.size(3)});
  x.cu_q = starts.mul(group);
  x.cu_k = starts.mul(rows_loaded);
  x.used_k = length.flatten().to(at::kInt);
  x.max_q = group;
  x.max_k = rows_loaded;
  x.scale = scale;
  const LibraryOutputs result = flash_packed_forward(x);
  const at::Tensor no_pair = empty.repeat_interleave(group, 1).unsqueeze(1);  // [A, 1, Hq]
  return {
      result.out.view({q.size(0), 1, heads, kv.v.size(3)}).masked_fill(no_pair.unsqueeze(-1), 0.0),
      result.lse.view({q.size(0), 1, heads})
          .masked_fill(no_pair, -std::numeric_limits<double>::infinity())};
}

/// The operator for whole tensors, each row with one range: its loaded rows.
std::pair<at::Tensor, at::Tensor> operator_on_loaded(const at::Tensor& q, const LoadedKv& kv,
                                                     const SelAttnOptions& options, double scale) {
  const at::Tensor end = lengths_of(kv).to(at::kInt);
  const at::Tensor ranges = at::stack({at::zeros_like(end), end}, -1).unsqueeze(2).unsqueeze(1);
  return sel_attn(q, kv.k.transpose(1, 2), kv.v.transpose(1, 2), ranges, kv.k.size(2) - 1, options,
                  scale);
}

}  // namespace

std::pair<at::Tensor, at::Tensor> attend_loaded_selected(const at::Tensor& q, const LoadedKv& kv,
                                                         const SelAttnOptions& options,
                                                         double scale) {
  if (options.backend == SelBackend::kGather || kv.k.size(2) == 0) {
    record_backend("sel_attn", to_string(options.backend), to_string(options.backend), "cache", "",
                   options.strict);
    const LoadedAttention result = attend_loaded(q, kv, scale);
    return {result.out, result.lse};
  }
  const bool one_call = options.backend == SelBackend::kVarlen &&
                        !needs_gradient({q, kv.k, kv.v}) && flash_obstacle(q, kv.k, kv.v).empty();
  if (!one_call) return operator_on_loaded(q, kv, options, scale);
  record_backend("sel_attn", "varlen", "varlen", "flash", "", options.strict);
  return flash_on_loaded(q, kv, scale);
}

}  // namespace nsa
