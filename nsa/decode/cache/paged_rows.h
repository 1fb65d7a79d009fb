#pragma once
#include <vector>

#include "nsa/decode/cache/kv_rows.h"

namespace nsa {

/// Rows of growing sequences in pages taken from a pool: row `position` of a sequence is in its
/// page position / page_size. With one page a sequence this is a contiguous cache.
class PagedRows {
 public:
  /// Each sequence may hold `rows_per_sequence` rows; the pool has `num_pages` pages.
  PagedRows(const NsaConfig& config, int64_t num_sequences, int64_t rows_per_sequence,
            int64_t page_size, int64_t num_pages, at::TensorOptions options);
  /// Over memory and pages of the caller's: rows of `memory` are num_pages * page_size; `table`
  /// int64 [sequences, pages_per_sequence], page or -1 behind the last one of a sequence. There is
  /// no pool to take further pages from. Reads the table, so it waits for the device; with
  /// `all_held` it does not, and takes every entry for a page.
  PagedRows(KvRows memory, int64_t page_size, const at::Tensor& table, bool all_held);

  /// Pages that a sequence lacks to hold `num_rows` rows.
  int64_t pages_missing(int64_t sequence, int64_t num_rows) const;
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t page_size() const { return page_size_; }
  int64_t pages_per_sequence() const { return pages_per_sequence_; }
  /// Rows that the pages of a sequence have room for.
  int64_t room(int64_t sequence) const {
    return static_cast<int64_t>(pages_[static_cast<size_t>(sequence)].size()) * page_size_;
  }
  /// int64 [sequences * pages_per_sequence] on the device: page, -1 = none.
  const at::Tensor& table() const { return table_; }
  /// Takes the missing pages from the pool, which must have them. One launch a page.
  void reserve(int64_t sequence, int64_t num_rows);
  /// Gives the pages of a sequence back.
  void release(int64_t sequence);

  /// Rows of `kv` for positions of sequences, int64 tensors that broadcast to each other; negative
  /// positions, and positions without a page, give negative rows.
  at::Tensor rows(const at::Tensor& sequence, const at::Tensor& position) const;

  KvRows kv;

 private:
  int64_t page_size_, pages_per_sequence_;
  at::Tensor table_;                         ///< [sequences * pages_per_sequence] page, -1 = none
  std::vector<std::vector<int64_t>> pages_;  ///< the same on the host
  std::vector<int64_t> free_;
};

}  // namespace nsa
