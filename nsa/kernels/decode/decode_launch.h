#pragma once
#include "nsa/kernels/common/divisor.h"
#include "nsa/kernels/decode/decode_attention.h"

/// One function per instantiation of the decode step: decode_DK_DV_(type).
namespace nsa::kernels::portable {

using nsa::kernels::Divisor;

/// How a (sequence, KV head) is cut into blocks of threads ("ranks"), and where things lie in the
/// shared memory of one (bytes from its start). A unit is one selection block.
struct DecodePlan {
  int ranks = 0, log_ranks = 0, warps = 0;
  bool unit_sums = false;  ///< scores are kept as one sum a unit (ScoreColumns), not as logits
  int score_stride = 0;    ///< columns of a head: logits, the halo first, or unit sums
  int tile_stride = 0;     ///< carries and references of a head; the first are the rank's before
  int area = 0;            ///< q, then scores, then the parts of outputs from all ranks
  int carries = 0, references = 0;  ///< of unit sums; in the area
  int stats = 0, warp_stats = 0, weights = 0, candidates = 0, keys = 0, bytes = 0;
  bool overlaps = false;  ///< the launch may start while the one before it ends: sm_90
};

using DecodeLaunch = cudaError_t (*)(const DecodeAttention&, const DecodePlan&, cudaStream_t);

cudaError_t decode_64_64_bf16(const DecodeAttention&, const DecodePlan&, cudaStream_t);
cudaError_t decode_64_64_fp16(const DecodeAttention&, const DecodePlan&, cudaStream_t);
cudaError_t decode_128_128_bf16(const DecodeAttention&, const DecodePlan&, cudaStream_t);
cudaError_t decode_128_128_fp16(const DecodeAttention&, const DecodePlan&, cudaStream_t);
cudaError_t decode_192_128_bf16(const DecodeAttention&, const DecodePlan&, cudaStream_t);
cudaError_t decode_192_128_fp16(const DecodeAttention&, const DecodePlan&, cudaStream_t);

/// Tiles in the ring of a warp, and the bytes of that ring.
constexpr int decode_stages(int qk_head_dim) { return qk_head_dim <= 64 ? 4 : 2; }
constexpr int decode_ring_bytes(int qk_head_dim, int v_head_dim) {
  return decode_stages(qk_head_dim) * 16 * (qk_head_dim + v_head_dim) * 2;
}

}  // namespace nsa::kernels::portable
