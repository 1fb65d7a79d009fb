#pragma once
#include <cstddef>
#include <cstdint>

#include "nsa/kernels/common/shared_bytes.h"

/// Which sizes the launchers of whole sequences take: they ask these functions, and so does who
/// wants to know in a build without CUDA code. nullptr where a kernel exists, else why not.
namespace nsa::kernels {

struct HeadSizes {
  int64_t num_heads, num_kv_heads, qk_head_dim, v_head_dim;
};

inline constexpr int64_t kMaxGroupOfInterval = 128, kMaxGroupOfSelection = 64, kMaxGroupOfRows = 16,
                         kMaxGroupOfSelectedBackward = 64;
inline constexpr int64_t kMaxTopNOfSelection = 64, kMaxRangesOfRow = 64;
inline constexpr int64_t kMaxBlockStrides = 8;  ///< l / d where blocks are chosen

inline constexpr const char* kOtherHeadDims =
    "head dims dk/dv are none of 64/64, 128/128, 192/128, 256/256";
inline constexpr const char* kLargeHeadDims =
    "head dims dk/dv are above 256/256, the largest that kernels have";

inline constexpr const char* kSm80HeadDims = "head dims dk/dv have code of sm_80 only";

constexpr bool have_kernels(int64_t qk_head_dim, int64_t v_head_dim) {
  return sm80::shared_bytes_of(qk_head_dim, v_head_dim).rows != 0;
}

struct HeadDims {
  int64_t qk = 0, v = 0;
  constexpr bool operator==(const HeadDims& other) const { return qk == other.qk && v == other.v; }
};
/// Head dims that have code of sm_90; the others are computed by code of sm_80 on every card.
constexpr bool have_wgmma_kernels(int64_t qk_head_dim, int64_t v_head_dim) {
  return have_kernels(qk_head_dim, v_head_dim) && qk_head_dim <= 192;
}
/// Smaller heads are not padded: more than half of a kernel's work would be zeros.
inline constexpr int64_t kLeastPaddedDim = 24;

/// The head dims that kernels compute a call with: its own where they have them, else the smallest
/// that hold both, with zeros behind the elements of a head; its own where none do, and where a dim
/// is below kLeastPaddedDim.
constexpr HeadDims computed_head_dims(int64_t qk_head_dim, int64_t v_head_dim) {
  if (qk_head_dim < kLeastPaddedDim || v_head_dim < kLeastPaddedDim)
    return {qk_head_dim, v_head_dim};
  for (const sm80::SharedBytes& one : sm80::kSharedBytes)  // the smallest first
    if (qk_head_dim <= one.qk_head_dim && v_head_dim <= one.v_head_dim)
      return {one.qk_head_dim, one.v_head_dim};
  return {qk_head_dim, v_head_dim};
}

/// Whether a launcher's table has `entries` for each of the head dims, or of those with code of
/// sm_90 (`wgmma_only`), and for no others.
template <class Instance, size_t kInstances>
constexpr bool covers_head_dims(const Instance (&table)[kInstances], size_t entries,
                                bool wgmma_only = false) {
  for (const Instance& one : table)
    if (!have_kernels(one.qk_head_dim, one.v_head_dim)) return false;
  for (const sm80::SharedBytes& dims : sm80::kSharedBytes) {
    if (wgmma_only && !have_wgmma_kernels(dims.qk_head_dim, dims.v_head_dim)) continue;
    size_t found = 0;
    for (const Instance& one : table)
      found += one.qk_head_dim == dims.qk_head_dim && one.v_head_dim == dims.v_head_dim ? 1 : 0;
    if (found != entries) return false;
  }
  return true;
}

constexpr const char* unsupported_heads(const HeadSizes& s, int64_t most, const char* too_many) {
  if (s.num_kv_heads < 1 || s.num_heads % s.num_kv_heads != 0) return "Hkv must divide Hq";
  if (s.num_heads / s.num_kv_heads > most) return too_many;
  if (have_kernels(s.qk_head_dim, s.v_head_dim)) return nullptr;
  const HeadDims computed = computed_head_dims(s.qk_head_dim, s.v_head_dim);
  const bool small = s.qk_head_dim < kLeastPaddedDim || s.v_head_dim < kLeastPaddedDim;
  return small || have_kernels(computed.qk, computed.v) ? kOtherHeadDims : kLargeHeadDims;
}

/// Window and compressed branch, forward and backward.
constexpr const char* unsupported_interval(const HeadSizes& s) {
  return unsupported_heads(s, kMaxGroupOfInterval, "more than 128 query heads a KV head");
}

struct SelectionSizes {
  int64_t group_size, extent, stride;  ///< l, d
  int64_t sel_block_size, top_n;

  constexpr bool wide_lists() const { return top_n > 32 || extent > 4 * stride; }
  /// Whether code of sm_80 alone chooses.
  constexpr bool needs_sm80() const { return wide_lists() || group_size > 16; }
};
/// The compressed branch with the choice of blocks.
constexpr const char* unsupported_selection(const SelectionSizes& s) {
  if (s.group_size > kMaxGroupOfSelection)
    return "block selection with more than 64 query heads a KV head";
  if (s.top_n > kMaxTopNOfSelection) return "block selection of more than 64 blocks";
  if (s.sel_block_size % s.stride != 0 || 128 % (s.sel_block_size / s.stride) != 0)
    return "block selection where l'/d does not divide 128";
  if (s.extent % s.stride != 0 || s.extent / s.stride > kMaxBlockStrides)
    return "block selection with l/d above 8";
  return nullptr;
}

constexpr const char* unsupported_ranges(int64_t num_ranges) {
  return num_ranges > kMaxRangesOfRow ? "more than 64 ranges a row" : nullptr;
}

/// The selected branch in the order of rows, forward.
constexpr const char* unsupported_rows(const HeadSizes& s, int64_t num_ranges) {
  const char* reason = unsupported_heads(s, kMaxGroupOfRows, "more than 16 query heads a KV head");
  return reason == nullptr ? unsupported_ranges(num_ranges) : reason;
}

/// Into how many groups of equal size a larger one is split, for the selected branch: the kernels
/// take up to 16 heads.
constexpr int64_t group_parts(int64_t group) {
  for (int64_t parts = 1; parts < group; ++parts)
    if (group % parts == 0 && group / parts <= kMaxGroupOfRows) return parts;
  return group > 0 ? group : 1;
}

/// The selected branch, backward.
constexpr const char* unsupported_selected_backward(const HeadSizes& s, int64_t num_ranges) {
  const char* reason =
      unsupported_heads(s, kMaxGroupOfSelectedBackward, "more than 64 query heads a KV head");
  return reason == nullptr ? unsupported_ranges(num_ranges) : reason;
}

}  // namespace nsa::kernels
