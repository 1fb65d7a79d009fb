#pragma once
#include "nsa/kernels/common/divisor.h"
#include "nsa/kernels/interval/interval_attention.h"

#ifdef __CUDACC__
#define NSA_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define NSA_HOST_DEVICE inline
#endif

/// Which positions attend a key, and which keys a position.
namespace nsa::kernels::sm90 {

NSA_HOST_DEVICE int first_position_of(const IntervalRule& rule, int key) {
  return key * rule.stride + rule.extent - 1;
}
NSA_HOST_DEVICE int last_position_of(const IntervalRule& rule, int key) {
  return key + rule.window - 1;
}

/// Half-open.
struct Span {
  int begin, end;
};

/// Keys that `position` attends; `stride` divides by that of the rule.
NSA_HOST_DEVICE Span keys_of(const IntervalRule& rule, int position, int num_keys,
                             const Divisor& stride) {
  const int visible =
      position + 1 < rule.extent ? 0 : stride.quotient(position + 1 - rule.extent) + 1;
  const int begin = position - rule.window + 1;
  return {begin > 0 ? begin : 0, visible < num_keys ? visible : num_keys};
}
NSA_HOST_DEVICE Span keys_of(const IntervalRule& rule, int position, int num_keys) {
  return keys_of(rule, position, num_keys, Divisor(rule.stride));
}

/// Queries that attend any of the keys [begin, end); begin >= end: none.
NSA_HOST_DEVICE Span queries_of(const IntervalAttention& p, int begin, int end) {
  const int first = first_position_of(p.rule, begin) - p.first_position,
            last = last_position_of(p.rule, end - 1) + 1 - p.first_position;
  return {first > p.first_query ? first : p.first_query,
          last < p.num_queries ? last : p.num_queries};
}

/// How the rows (token, head of the group) of a KV head are cut into tiles of at most `limit` rows:
/// `tokens` tokens of `heads` heads; `parts` tiles cover the heads of a group.
struct RowTiling {
  int tokens, heads, parts;
};
NSA_HOST_DEVICE RowTiling row_tiling(int group_size, int limit) {
  int heads = group_size < limit ? group_size : limit;
  while (group_size % heads != 0) --heads;
  return {heads == group_size ? limit / heads : 1, heads, group_size / heads};
}

}  // namespace nsa::kernels::sm90
#undef NSA_HOST_DEVICE
