#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nsa/train/liveness/rank_watch.h"
#include "nsa/train/ranks/rank_agreement.h"

namespace nsa::train {

/// The other ranks of a run, from meeting them to leaving them: their group, a log of the last
/// collective, and a watch over their signs of life. A run of one rank has none of these.
class RankSession {
 public:
  /// Meets the other ranks, and watches from then on that all of them go on; `on_lost`: RankWatch.
  /// The log of collectives is a file in `out`, unless that is empty.
  void join(const RankPlace& place, at::Device device, double timeout_s,
            const std::filesystem::path& out, std::function<void(const Finding&)> on_lost);

  RankGroup* group() const { return group_.get(); }                  ///< null: there is one rank
  CollectiveLog* collectives() const { return collectives_.get(); }  ///< the same
  std::string backend() const { return group_ ? group_->backend() : ""; }

  /// Ends the run on all ranks, by an InputError, if one was started with other settings.
  void require_agreement(const RankSettings& settings);
  /// This rank did something: a stage of a step has ended.
  void progress();
  /// The value of every rank, by rank; empty where there is one.
  std::vector<double> gather(double value, const char* what);
  /// The rank and its last collective, in front of an error between ranks; empty for one rank.
  std::string error_prefix() const;
  /// Ends the watch; what the signs of life told before an error of the main thread, or nothing.
  std::string end_watch();
  /// This rank leaves the others, which is no loss to them.
  void leave();

 private:
  int64_t rank_ = 0;
  std::unique_ptr<CollectiveLog> collectives_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<RankWatch> watch_;
};

}  // namespace nsa::train
