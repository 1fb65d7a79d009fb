#include "nsa/train/liveness/rank_watch.h"

#include "nsa/train/liveness/process_activity.h"
#include "nsa/train/record/run_lines.h"

namespace nsa::train {
namespace {

/// A backend's own timeout names the fault better; the watch comes behind it.
constexpr double kBackendGraceS = 5;

/// Texts in the store where the ranks met, over a connection of its own.
class MeetingStore : public PulseStore {
 public:
  explicit MeetingStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& text) override { store_->set(key, text); }
  std::optional<std::string> get(const std::string& key) override {
    if (!store_->check({key})) return std::nullopt;
    return store_->get_to_str(key);
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

RankWatch::RankWatch(const RankPlace& place, const RankGroup& ranks,
                     const CollectiveLog& collectives, double timeout_s,
                     std::function<void(const Finding&)> on_lost)
    : pulse_(std::make_unique<RankPulse>(
          RankPulse::Place{place.rank, place.world, ranks.device().is_cpu()},
          std::make_unique<MeetingStore>(ranks.connect()),
          PulseSource{
              .was_active =
                  [activity = std::make_shared<ProcessActivity>()] {
                    return activity->was_active();
                  },
              .last = [&collectives] { return collectives.last(); },
              .waits = [&] { return ranks.waits() || !collectives.has_ended(); },
              .on_lost = [on_lost](const std::string& lost) { on_lost(lost_finding(lost)); }})),
      steps_(timeout_s + kBackendGraceS, [=, &collectives](double silence_s) {
        on_lost(stall_finding(place, silence_s, collectives.last()));
      }) {}

void RankWatch::progress() {
  steps_.progress();
  if (pulse_) pulse_->progress();
}

}  // namespace nsa::train
