#include "nsa/layer/msa/msa_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/select/fused_index.h"
#include "nsa/ops/select/index_scores.h"
#include "nsa/ops/select/positions.h"
#include "nsa/ops/select/ranges.h"
#include "nsa/ops/select/top_n.h"
#include "nsa/ops/selected/sel_attn.h"

namespace nsa {
namespace {

/// Queries whose scores of all blocks exist at one time.
constexpr int64_t kIndexedQueries = 4096;

void check_index(const at::Tensor& q, const at::Tensor& k, const at::Tensor& q_idx,
                 const at::Tensor& k_idx) {
  const ArgumentCheck check("msa_attention");
  check.defined("q_idx", q_idx);
  check.defined("k_idx", k_idx);
  check.rank("q_idx", q_idx, 4, "[B, S, Hkv, di]");
  check.rank("k_idx", k_idx, 3, "[B, S, di]");
  check.sizes("q_idx", q_idx, {q.size(0), q.size(1), k.size(2), -1},
              "[B, S, Hkv, di]: one head of the index for each KV head");
  check.sizes("k_idx", k_idx, {q.size(0), q.size(1), q_idx.size(3)},
              "[B, S, di]: one head for all");
  for (const auto& [name, x] : {std::pair{"q_idx", &q_idx}, {"k_idx", &k_idx}}) {
    check.same_dtype(name, *x, "q", q);
    check.same_device(name, *x, "q", q);
    TORCH_CHECK_VALUE(!at::GradMode::is_enabled() || !x->requires_grad(),
                      "nsa::msa_attention: ", name,
                      " must not require a gradient, as the choice of blocks has none: detach it, "
                      "and train the index by a loss of its own");
  }
}

/// What select_blocks reads: the current block is the one that is forced.
NsaConfig selection_of(const MsaConfig& config, int64_t num_heads, int64_t num_kv_heads) {
  NsaConfig c;
  c.num_heads = num_heads;
  c.num_kv_heads = num_kv_heads;
  c.sel_block_size = config.block_size;
  c.top_n = config.top_n;
  c.num_initial = 0;
  c.num_local = 1;
  return c;
}

at::Tensor choose_blocks(const at::Tensor& q_idx, const at::Tensor& k_idx,
                         const at::Tensor& positions, const NsaConfig& c,
                         const NsaOptions& options) {
  const at::NoGradGuard no_grad;
  if (options.sel == SelBackend::kFused) {
    const KernelChoice kernel = choose_index_kernel(q_idx, k_idx, c);
    record_backend("select", "fused", kernel.runs() ? "fused" : "plain", kernel.detail,
                   kernel.obstacle, options.strict_backend);
    if (kernel.runs()) return select_by_index(q_idx, k_idx, c);
  } else {
    record_stage("select", "plain");
  }
  std::vector<at::Tensor> ids;
  int64_t begin = 0;
  do {  // once at least: no tokens give an empty tensor of the right shape
    const int64_t count = std::min(kIndexedQueries, q_idx.size(1) - begin);
    const at::Tensor scores = index_scores(
        q_idx.narrow(1, begin, count), k_idx.narrow(1, 0, begin + count), c.sel_block_size, begin);
    ids.push_back(select_blocks(scores, positions.narrow(0, begin, count), c));
    begin += count;
  } while (begin < q_idx.size(1));
  return ids.size() == 1 ? ids[0] : at::cat(ids, 1);
}

}  // namespace

IndexedAttention attend_by_index(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& q_idx, const at::Tensor& k_idx,
                                 const MsaConfig& config, const NsaOptions& options) {
  const ArgumentCheck check("msa_attention");
  check.qkv(q, "k", k, "v", v);
  check.sizes("k", k, {-1, q.size(1), -1, -1}, "[B, S, Hkv, dk]");
  check.at_least("block_size", config.block_size, 1);
  check.at_least("top_n", config.top_n, 1);
  check_index(q, k, q_idx, k_idx);
  IndexedAttention result;
  result.record = c10::make_intrusive<RunRecord>(options.sdpa_audit, current_record());
  const RunRecordScope scope(result.record);
  const NsaConfig c = selection_of(config, q.size(2), k.size(2));
  const at::Tensor positions =
      at::arange(q.size(1), q.options().dtype(at::kLong).requires_grad(false));
  {
    const NvtxRange range("nsa.select", options.nvtx);
    const bool given = options.block_idx.defined();
    result.block_idx = given ? block_set(options.block_idx, positions, config.block_size).block_idx
                             : choose_blocks(q_idx, k_idx, positions, c, options);
    if (given) record_stage("select", "given");
  }
  const at::Tensor ranges =
      block_ranges(options.ranges, result.block_idx, positions, config.block_size);
  record_stage("ranges", to_string(options.ranges));
  const NvtxRange range("nsa.sel_attn", options.nvtx);
  std::tie(result.o, result.lse) =
      sel_attn(q, k, v, ranges, /*first_position=*/0,
               {options.sel, options.safe_pack, options.strict_backend, config.block_size});
  return result;
}

}  // namespace nsa
