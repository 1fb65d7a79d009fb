#include "nsa/ops/cpu/choose_blocks.h"

#include <algorithm>
#include <cmath>

namespace nsa::cpu {

void BlockChoice::choose(const float* scores, int64_t current, int32_t* ids) {
  const int64_t n = config_.top_n;
  std::fill_n(ids, n, -1);
  if (current < n) {  // every block up to the current one has a place
    for (int64_t j = 0; j <= current; ++j) ids[j] = static_cast<int32_t>(j);
    return;
  }
  const int64_t begin = config_.num_initial, end = current + 1 - config_.num_local;
  keep_best(scores, begin, end, static_cast<size_t>(n - config_.num_initial - config_.num_local));
  int32_t* next = ids;
  for (int64_t j = 0; j < begin; ++j) *next++ = static_cast<int32_t>(j);
  for (const Candidate& candidate : best_) *next++ = candidate.id;
  std::sort(ids + begin, next);
  for (int64_t j = end; j <= current; ++j) *next++ = static_cast<int32_t>(j);
}

void BlockChoice::keep_best(const float* scores, int64_t begin, int64_t end, size_t places) {
  best_.clear();
  if (places == 0) return;
  for (int64_t j = begin; j < end; ++j) {
    const float score = std::isnan(scores[j]) ? -1.0F : scores[j];
    // Blocks come in ascending order: one of an equal score stays behind.
    if (best_.size() == places) {
      if (!(score > best_.back().score)) continue;
      best_.pop_back();
    }
    size_t place = best_.size();
    best_.push_back({score, static_cast<int32_t>(j)});
    for (; place > 0 && score > best_[place - 1].score; --place) best_[place] = best_[place - 1];
    best_[place] = {score, static_cast<int32_t>(j)};
  }
}

}  // namespace nsa::cpu
