#pragma once
#include "nsa/kernels/interval/interval_bounds.h"

namespace nsa::kernels::sm90 {

/// Chunks of `chunk_tokens` tokens that the queries of keys [begin, end) make.
#ifdef __CUDACC__
__host__ __device__
#endif
    inline int chunks_of(const IntervalAttention& p, int begin, int end, int chunk_tokens) {
  const Span span = queries_of(p, begin, end);
  return span.end <= span.begin ? 0 : (span.end - span.begin + chunk_tokens - 1) / chunk_tokens;
}

}  // namespace nsa::kernels::sm90
