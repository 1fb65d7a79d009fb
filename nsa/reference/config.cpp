#include "nsa/reference/config.h"

#include <cmath>
#include <string>
#include <utility>

#include "nsa/reference/tensor.h"

namespace nsa::reference {
namespace {

void require(bool valid, const char* field, const std::string& want, int64_t have) {
  if (!valid) reject("Config", field, want, std::to_string(have));
}

}  // namespace

void validate(const Config& c) {
  const std::pair<const char*, int64_t> sizes[] = {{"num_heads", c.num_heads},
                                                   {"num_kv_heads", c.num_kv_heads},
                                                   {"qk_head_dim", c.qk_head_dim},
                                                   {"v_head_dim", c.v_head_dim},
                                                   {"block_size", c.block_size},
                                                   {"block_stride", c.block_stride},
                                                   {"top_n", c.top_n},
                                                   {"sel_block_size", c.sel_block_size}};
  for (const auto& [name, size] : sizes) require(size >= 1, name, "at least 1", size);

  const std::string l = std::to_string(c.block_size);
  require(c.block_size % c.block_stride == 0, "block_stride", "a divisor of block_size=" + l,
          c.block_stride);
  require(c.sel_block_size % c.block_stride == 0, "block_stride",
          "a divisor of sel_block_size=" + std::to_string(c.sel_block_size), c.block_stride);
  require(c.block_size <= c.sel_block_size, "sel_block_size", "at least block_size=" + l,
          c.sel_block_size);
  require(c.num_heads % c.num_kv_heads == 0, "num_kv_heads",
          "a divisor of num_heads=" + std::to_string(c.num_heads), c.num_kv_heads);
  require(c.window >= 0, "window", "at least 0", c.window);
  require(c.n_initial >= 0, "n_initial", "at least 0", c.n_initial);
  require(c.n_local >= 1, "n_local", "at least 1", c.n_local);
  // Written without a sum, which could overflow.
  require(c.n_local <= c.top_n && c.n_initial <= c.top_n - c.n_local, "top_n",
          "at least n_initial + n_local = " + std::to_string(c.n_initial) + " + " +
              std::to_string(c.n_local),
          c.top_n);
  require(c.rope == Rope::kNone || c.qk_head_dim % 2 == 0, "qk_head_dim",
          "even unless rope is none", c.qk_head_dim);
  if (!(std::isfinite(c.rope_base) && c.rope_base > 0))
    reject("Config", "rope_base", "positive and finite", std::to_string(c.rope_base));
  const std::pair<const char*, std::optional<double>> scales[] = {
      {"scale_cmp", c.scale_cmp}, {"scale_sel", c.scale_sel}, {"scale_win", c.scale_win}};
  for (const auto& [name, scale] : scales)
    if (scale && !(std::isfinite(*scale) && *scale > 0))
      reject("Config", name, "positive and finite", std::to_string(*scale));
}

}  // namespace nsa::reference
