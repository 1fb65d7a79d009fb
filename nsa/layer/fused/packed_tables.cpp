#include "nsa/layer/fused/packed_tables.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nsa/layer/fused/fused_tokens.h"
#include "nsa/ops/attention/fused_interval.h"
#include "nsa/ops/common/kernel_problem.h"
#include "nsa/ops/gate/fused_combine.h"
#include "nsa/ops/rope/cos_sin_table.h"
#include "nsa/ops/selected/backends.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/kernels/tokens/document_tables.h"
#endif

namespace nsa {

namespace {

constexpr int64_t kKeysOfAlignedTile = 64;

/// Aligned tiles that `keys` keys in a row meet at most, wherever they begin.
int64_t tiles_of(int64_t keys) {
  return keys <= 0 ? 1 : (keys - 1 + kKeysOfAlignedTile - 1) / kKeysOfAlignedTile + 1;
}

}  // namespace

int64_t PackedTables::sel_tiles(const NsaConfig& config, int64_t num_ids) const {
  return std::min(num_ids * tiles_of(config.sel_block_size), tiles_of(kernels.longest));
}
int64_t PackedTables::win_tiles_of_row(const NsaConfig& config) const {
  return tiles_of(std::min(config.window, kernels.longest));
}
int64_t PackedTables::cmp_tiles_of_row(const NsaConfig& config) const {
  return tiles_of(config.num_compressed(kernels.longest));
}

#ifdef NSA_WITH_CUDA
PackedKernels choose_packed(const NsaInputs& in, const NsaConfig& config, int64_t num_ids) {
  PackedKernels chosen;
  const int64_t tokens = in.q.size(0);
  const auto refuse = [&](const char* branch, const std::string& reason) {
    if (chosen.obstacle.empty() && !reason.empty()) chosen.obstacle = std::string(branch) + reason;
  };
  if (!sources_are_pooled(config)) refuse("", "blocks are not pooled by the mean before rotation");
  if (tokens > INT32_MAX / 2 || in.cu_seqlens.numel() > INT32_MAX / 2)
    refuse("", "more tokens or documents than 32 bits count");
  if (in.cu_seqlens.numel() < 2) refuse("", "there is no document");
  if (!chosen.obstacle.empty()) return chosen;
  const auto one = [](const at::Tensor& x) { return x.unsqueeze(0); };
  NsaInputs sequence = in;
  sequence.q = one(in.q), sequence.k_sel = one(in.k_sel), sequence.v_sel = one(in.v_sel);
  sequence.v_cmp_src = one(in.v_cmp_src);
  if (!tokens_by_kernel(sequence, config) || !combines_by_kernel(sequence.v_sel, in.gate_logits)) {
    refuse("", "rotation, pooling or gates have no kernel for these inputs");
    return chosen;
  }
  const int64_t blocks = tokens / config.block_stride;
  const at::Tensor k_win = one(in.k_win), v_win = one(in.v_win),
                   k_cmp = one(in.k_cmp_src).narrow(1, 0, blocks),
                   v_cmp = sequence.v_cmp_src.narrow(1, 0, blocks);
  chosen.longest = std::clamp<int64_t>(in.max_seqlen.value_or(tokens), 1, tokens);
  chosen.cmp = choose_interval_kernel(sequence.q, k_cmp, v_cmp, compressed_mask(config), &config);
  refuse("compressed branch: ", chosen.cmp.obstacle);
  if (config.window > 0) {
    chosen.win = choose_interval_kernel(sequence.q, k_win, v_win, window_mask(config));
    refuse("window: ", chosen.win.obstacle);
  }
  PackedTables bounds;
  bounds.kernels = chosen;
  const auto selected = [&](const char* branch, const at::Tensor& k, const at::Tensor& v,
                            int64_t ids, int64_t max_tiles) {
    const at::Tensor ranges = at::empty({0, 0, 0, ids, 2}, at::kInt);
    const SelectedKernels kernels =
        choose_selected_kernels({sequence.q, k, v, ranges, 0, 1.0, 0, max_tiles});
    refuse(branch, kernels.obstacle());
    return kernels;
  };
  const SelectedKernels sel = selected("selected branch: ", sequence.k_sel, sequence.v_sel, num_ids,
                                       bounds.sel_tiles(config, num_ids));
  chosen.sel = sel.backward, chosen.sel_rows = sel.forward, chosen.sel_by_keys = sel.by_keys;
  selected("gradients of the window: ", k_win, v_win, 1, bounds.win_tiles_of_row(config));
  if (blocks > 0)
    selected("gradients of the compressed branch: ", k_cmp, v_cmp, 1,
             bounds.cmp_tiles_of_row(config));
  return chosen;
}

PackedTables make_packed_tables(const NsaInputs& in, const NsaConfig& config,
                                const PackedKernels& chosen, bool backward) {
  const c10::cuda::CUDAGuard guard(in.q.device());
  PackedTables t;
  t.kernels = chosen;
  const int64_t tokens = in.q.size(0), documents = in.cu_seqlens.numel() - 1,
                kv_heads = config.num_kv_heads;
  const auto ints = [&](at::IntArrayRef sizes) {
    return at::empty(sizes, in.q.options().dtype(at::kInt));
  };
  t.num_blocks = tokens / config.block_stride;
  t.start = ints({tokens}), t.position = ints({tokens}), t.block_first = ints({t.num_blocks});
  t.poison = at::empty({tokens}, in.q.options().dtype(at::kFloat));
  kernels::DocumentTables p;
  const at::Tensor offsets = in.cu_seqlens.to(in.q.device()).contiguous();
  p.cu_seqlens = offsets.const_data_ptr<int32_t>();
  p.documents = static_cast<int>(documents), p.num_tokens = static_cast<int>(tokens);
  p.num_kv_heads = static_cast<int>(kv_heads);
  p.block_size = static_cast<int>(config.block_size);
  p.block_stride = static_cast<int>(config.block_stride);
  p.window = static_cast<int>(std::min<int64_t>(config.window, tokens));
  p.longest = static_cast<int>(chosen.longest);
  p.start = t.start.mutable_data_ptr<int32_t>();
  p.position = t.position.mutable_data_ptr<int32_t>();
  p.poison = t.poison.mutable_data_ptr<float>();
  p.block_first = t.block_first.mutable_data_ptr<int32_t>();
  if (backward) {
    const auto ranges = [&](at::Tensor& to) {
      to = ints({1, tokens, kv_heads, 1, 2});
      return reinterpret_cast<int2*>(to.mutable_data_ptr<int32_t>());
    };
    p.window_range = ranges(t.win_ranges), p.block_range = ranges(t.cmp_ranges);
  } else {
    const auto tiles = [&](at::Tensor& to, const KernelChoice& kernel, bool of_blocks) {
      const int64_t of_tile =
          interval_tile_tokens(in.q, in.k_sel, in.v_sel, kernel.code, /*selects=*/of_blocks);
      const int count = kernels::num_document_tiles(p.num_tokens, p.documents, int(of_tile));
      to = ints({count, 4});
      return kernels::DocumentTables::Tiles{
          reinterpret_cast<kernels::DocumentTile*>(to.mutable_data_ptr<int32_t>()), int(of_tile),
          of_blocks};
    };
    p.tiles[0] = tiles(t.cmp_tiles, chosen.cmp, true);
    if (config.window > 0) p.tiles[1] = tiles(t.win_tiles, chosen.win, false);
  }
  check_launch(kernels::document_tables(p, c10::cuda::getCurrentCUDAStream(in.q.get_device())),
               "nsa_attention");
  if (config.rope != RopeMode::kNone)
    t.cos_sin = cos_sin_table(tokens, config.qk_head_dim, config.rope_base, in.q.device())
                    .index_select(0, t.position);
  return t;
}
#else
PackedKernels choose_packed(const NsaInputs&, const NsaConfig&, int64_t) {
  PackedKernels chosen;
  chosen.obstacle = "this build has no CUDA code";
  return chosen;
}

PackedTables make_packed_tables(const NsaInputs&, const NsaConfig&, const PackedKernels&, bool) {
  TORCH_CHECK(false, "nsa::nsa_attention: this build has no CUDA code");
}
#endif

}  // namespace nsa
