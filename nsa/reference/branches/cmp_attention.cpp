#include "nsa/reference/branches/cmp_attention.h"

#include "nsa/reference/stages/compress.h"

namespace nsa::reference {
namespace {

AttendedKeys blocks_attended_by(const Config& config) {
  return [&config](int64_t, int64_t t, int64_t) { return visible_blocks(config, t); };
}

void check_num_blocks(const Config& config, const Tensor<double>& q, const Tensor<double>& k_cmp) {
  require_rank("cmp_attention", "q", q, 4, "[B,S,Hq,dk]");
  require_rank("cmp_attention", "k_cmp", k_cmp, 4, "[B,N_c,Hkv,dk]");
  const int64_t blocks = num_compressed(config, q.size(1));
  require_shape("cmp_attention", "k_cmp", k_cmp,
                {k_cmp.size(0), blocks, k_cmp.size(2), k_cmp.size(3)});
}

}  // namespace

std::vector<int64_t> visible_blocks(const Config& config, int64_t t) {
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i * config.block_stride + config.block_size - 1 <= t; ++i)
    blocks.push_back(i);
  return blocks;
}

Attention cmp_attention(const Config& config, const Tensor<double>& q, const Tensor<double>& k_cmp,
                        const Tensor<double>& v_cmp) {
  check_num_blocks(config, q, k_cmp);
  return attention("cmp_attention", q, k_cmp, v_cmp, blocks_attended_by(config), config.scale_cmp,
                   /*keep_p=*/true);
}

AttentionGradients cmp_attention_backward(const Config& config, const Tensor<double>& q,
                                          const Tensor<double>& k_cmp, const Tensor<double>& v_cmp,
                                          const Tensor<double>& d_o) {
  check_num_blocks(config, q, k_cmp);
  return attention_backward("cmp_attention", q, k_cmp, v_cmp, blocks_attended_by(config), d_o,
                            config.scale_cmp);
}

}  // namespace nsa::reference
