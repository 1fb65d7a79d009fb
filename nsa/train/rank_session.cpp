#include "nsa/train/rank_session.h"

#include <chrono>

#include "nsa/program/input_error.h"
#include "nsa/train/record/run_lines.h"

namespace nsa::train {

void RankSession::join(const RankPlace& place, at::Device device, double timeout_s,
                       const std::filesystem::path& out,
                       std::function<void(const Finding&)> on_lost) {
  if (place.world == 1) return;
  rank_ = place.rank;
  collectives_ = out.empty()
                     ? std::make_unique<CollectiveLog>()
                     : std::make_unique<CollectiveLog>(
                           out / ("last_collective.rank" + std::to_string(place.rank) + ".txt"));
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * timeout_s));
  group_ = std::make_unique<RankGroup>(place, device, timeout);
  watch_ =
      std::make_unique<RankWatch>(place, *group_, *collectives_, timeout_s, std::move(on_lost));
}

void RankSession::require_agreement(const RankSettings& settings) {
  if (!group_) return;
  collectives_->begin("comparison of options");
  std::vector<RankSettings> of_ranks;
  for (const std::string& text : group_->gather(to_text(settings)))
    of_ranks.push_back(settings_of_text(text));
  collectives_->end();
  const std::string difference = describe_disagreement(of_ranks);
  if (difference.empty()) return;
  group_->leave();
  throw InputError(difference);
}

void RankSession::progress() {
  if (watch_) watch_->progress();
}

std::vector<double> RankSession::gather(double value, const char* what) {
  std::vector<double> values;
  if (!group_) return values;
  collectives_->begin(what);
  for (const std::string& text : group_->gather(std::to_string(value)))
    values.push_back(std::stod(text));
  collectives_->end();
  return values;
}

std::string RankSession::error_prefix() const {
  return group_ ? kRankFault + std::string("rank ") + std::to_string(rank_) + ", " +
                      collectives_->last() + ": "
                : "";
}

std::string RankSession::end_watch() {
  const std::string lost = watch_ ? watch_->lost() : "";
  watch_.reset();
  return lost;
}

void RankSession::leave() {
  if (!group_) return;
  watch_->leave();
  group_->leave();
}

}  // namespace nsa::train
