#include "nsa/decode/cache/paged_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace nsa {
namespace {

int64_t pages_of(int64_t num_rows, int64_t page_size) {
  return num_rows / page_size + (num_rows % page_size != 0 ? 1 : 0);
}

}  // namespace

PagedRows::PagedRows(const NsaConfig& config, int64_t num_sequences, int64_t rows_per_sequence,
                     int64_t page_size, int64_t num_pages, at::TensorOptions options)
    : kv(KvRows::allocate(config, num_pages * page_size, options)),
      page_size_(page_size),
      pages_per_sequence_(pages_of(rows_per_sequence, page_size)),
      table_(at::full({num_sequences * pages_per_sequence_}, -1, options.dtype(at::kLong))),
      pages_(static_cast<size_t>(num_sequences)) {
  for (int64_t page = num_pages; page > 0; --page) free_.push_back(page - 1);
}

PagedRows::PagedRows(KvRows memory, int64_t page_size, const at::Tensor& table, bool all_held)
    : kv(std::move(memory)),
      page_size_(page_size),
      pages_per_sequence_(table.size(1)),
      table_(table.flatten()),
      pages_(static_cast<size_t>(table.size(0))) {
  if (all_held) {  // their numbers are the device's alone
    for (std::vector<int64_t>& pages : pages_) pages.resize(static_cast<size_t>(table.size(1)));
    return;
  }
  const at::Tensor host = table.cpu().contiguous();
  const auto* page = host.const_data_ptr<int64_t>();
  for (std::vector<int64_t>& pages : pages_) {
    const int64_t* const end =
        std::find_if(page, page + pages_per_sequence_, [](int64_t id) { return id < 0; });
    pages.assign(page, end);
    page += pages_per_sequence_;
  }
}

int64_t PagedRows::pages_missing(int64_t sequence, int64_t num_rows) const {
  const auto held = static_cast<int64_t>(pages_[static_cast<size_t>(sequence)].size());
  return std::max<int64_t>(0, pages_of(num_rows, page_size_) - held);
}

void PagedRows::reserve(int64_t sequence, int64_t num_rows) {
  std::vector<int64_t>& pages = pages_[static_cast<size_t>(sequence)];
  for (int64_t missing = pages_missing(sequence, num_rows); missing > 0; --missing) {
    TORCH_INTERNAL_ASSERT(!free_.empty(), "reserve without checking pages_missing");
    const int64_t place = sequence * pages_per_sequence_ + static_cast<int64_t>(pages.size());
    table_.select(0, place).fill_(free_.back());  // a scalar of a launch: nothing waits
    pages.push_back(free_.back());
    free_.pop_back();
  }
}

void PagedRows::release(int64_t sequence) {
  std::vector<int64_t>& pages = pages_[static_cast<size_t>(sequence)];
  free_.insert(free_.end(), pages.rbegin(), pages.rend());
  pages.clear();
  table_.narrow(0, sequence * pages_per_sequence_, pages_per_sequence_).fill_(-1);
}

at::Tensor PagedRows::rows(const at::Tensor& sequence, const at::Tensor& position) const {
  const at::Tensor place = position.clamp_min(0);
  const at::Tensor page =
      table_.take(place.floor_divide(page_size_).add(sequence.mul(pages_per_sequence_)));
  const at::Tensor row = page.mul(page_size_).add_(place.remainder(page_size_));
  return row.masked_fill_(position.lt(0), -1);
}

}  // namespace nsa
