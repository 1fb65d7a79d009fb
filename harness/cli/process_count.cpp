#include "harness/cli/process_count.h"

#include <algorithm>
#include <charconv>

namespace harness::cli {
namespace {

/// 7 of "g07"; 0 where the id is no number.
size_t number_of(const std::string& group) {
  size_t number = 0;
  const char* end = group.data() + group.size();
  if (!group.starts_with('g') || std::from_chars(group.data() + 1, end, number).ptr != end)
    return 0;
  return number;
}

}  // namespace

ProcessCount::ProcessCount(const PlannedPhase& phase) : of_(phase.groups.size()) {
  for (const PlannedStage& stage : phase.further) stages_.push_back(stage.groups.size());
}

void ProcessCount::start(const std::string& group, double in_phase) {
  if (starts_ > 0) each_ = in_phase / static_cast<double>(starts_);
  ++starts_;
  const size_t named = number_of(group);
  number_ = named > 0 ? named : number_ + 1;
  while (number_ > of_ && !stages_.empty()) {
    of_ += stages_.front();
    stages_.erase(stages_.begin());
  }
  of_ = std::max(of_, number_);
}

double ProcessCount::left(double in_phase) const {
  if (starts_ < 2) return 0;
  const double end = each_ * static_cast<double>(starts_ + of_ - number_);
  return std::max(0.0, end - in_phase);
}

}  // namespace harness::cli
