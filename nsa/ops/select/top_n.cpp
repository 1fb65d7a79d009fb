#include "nsa/ops/select/top_n.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/select/positions.h"

namespace nsa {
namespace {

/// Order of an integer key type: not a candidate < NaN < every number < forced.
struct KeyRange {
  int64_t excluded, nan, forced;
};

KeyRange key_range(at::ScalarType integer) {
  if (integer == at::kInt) {
    using Limits = std::numeric_limits<int32_t>;
    return {Limits::min(), Limits::min() + 1, Limits::max()};
  }
  using Limits = std::numeric_limits<int64_t>;
  return {Limits::min(), Limits::min() + 1, Limits::max()};
}

/// Integers that order as the scores do; the two zeros are one number.
at::Tensor sortable_keys(const at::Tensor& scores, at::ScalarType integer, const KeyRange& range) {
  const at::Tensor bits = scores.add(0.0).contiguous().view(integer);  // -0 + 0 = +0
  const at::Tensor flipped = bits.bitwise_xor(range.forced);  // negative: larger bits are smaller
  return at::where(bits.lt(0), flipped, bits).masked_fill_(scores.isnan(), range.nan);
}

/// [*, Hkv, N] keys -> the `count` ids of the largest keys, ties to the lower index, ascending.
at::Tensor ascending_ids(const at::Tensor& keys, int64_t count, int64_t excluded) {
  const auto [values, order] = at::sort(keys, /*stable=*/true, /*dim=*/-1, /*descending=*/true);
  const at::Tensor chosen =
      order.narrow(-1, 0, count)
          .to(at::kInt)
          .masked_fill_(values.narrow(-1, 0, count).eq(excluded), kUnusedPlace);
  const at::Tensor ids = std::get<0>(at::sort(chosen, /*stable=*/true, -1, false));
  return ids.masked_fill(ids.eq(kUnusedPlace), -1);
}

void check_last_block(const ArgumentCheck& check, const at::Tensor& t, int64_t num_blocks,
                      int64_t sel_block_size) {
  if (!t.is_cpu() || t.numel() == 0) return;  // reading values of a GPU tensor would synchronise
  const auto [least, most] = at::aminmax(t);
  check.at_least("t", least.item<int64_t>(), 0);
  check.at_least("N", num_blocks, most.item<int64_t>() / sel_block_size + 1);
}

at::Tensor select_blocks_op(const at::Tensor& scores_in, const at::Tensor& t, int64_t top_n,
                            int64_t num_initial, int64_t num_local, int64_t sel_block_size) {
  const ArgumentCheck check("select_blocks");
  check.defined("scores", scores_in);
  if (scores_in.dim() < 3) {
    check.fail("scores", "of shape [*, Hkv, N] with at least one axis before Hkv",
               "rank " + std::to_string(scores_in.dim()));
  }
  if (scores_in.scalar_type() != at::kFloat) check.dtype("scores", scores_in, at::kDouble);
  check.at_least("sel_block_size", sel_block_size, 1);
  check.at_least("num_initial", num_initial, 0);
  check.at_least("num_local", num_local, 1);
  check.at_least("top_n", top_n, num_initial + num_local);
  const at::NoGradGuard no_grad;
  const at::Tensor scores = scores_in.detach();
  const int64_t num_blocks = scores.size(-1);
  const at::Tensor position = row_positions(check, t, "scores", scores);
  if (scores.numel() > 0) check_last_block(check, t, num_blocks, sel_block_size);

  const at::Tensor current = position.floor_divide(sel_block_size);
  const at::Tensor block = at::arange(num_blocks, t.options());
  const at::Tensor excluded = block.gt(current);
  const int64_t count = std::min(top_n, num_blocks);
  at::Tensor ids;
  if (num_blocks <= top_n) {  // every block up to the current one has a place
    ids = at::where(excluded, -1, block).to(at::kInt).expand(scores.sizes());
  } else {
    const at::ScalarType integer = scores.scalar_type() == at::kFloat ? at::kInt : at::kLong;
    const KeyRange range = key_range(integer);
    const at::Tensor forced = block.lt(num_initial).logical_or(block.gt(current.sub(num_local)));
    const at::Tensor keys = sortable_keys(scores, integer, range)
                                .masked_fill_(forced, range.forced)
                                .masked_fill_(excluded, range.excluded);
    ids = ascending_ids(keys, count, range.excluded);
  }
  return at::constant_pad_nd(ids, {0, top_n - count}, -1).contiguous();
}

}  // namespace

at::Tensor select_blocks(const at::Tensor& scores, const at::Tensor& t, const NsaConfig& config) {
  static const auto op = find_operator<decltype(select_blocks_op)>("nsa::select_blocks");
  return op.call(scores, t, config.top_n, config.num_initial, config.num_local,
                 config.sel_block_size);
}

}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def(
      "select_blocks(Tensor scores, Tensor t, int top_n, int num_initial, int num_local, "
      "int sel_block_size) -> Tensor",
      TORCH_FN(nsa::select_blocks_op));
}
