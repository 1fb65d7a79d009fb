#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace nsa::train {

/// Where ranks leave texts for one another. Calls may take long, and throw where the store is lost.
struct PulseStore {
  virtual ~PulseStore() = default;
  virtual void set(const std::string& key, const std::string& text) = 0;
  virtual std::optional<std::string> get(const std::string& key) = 0;
};

/// How long ranks may be silent; s.
struct PulseLimits {
  double interval_s = 0.5;  ///< between two signs of life
  double silence_s = 5;     ///< of a rank that gives none, or of the store
  double idle_s = 5;        ///< in which no rank does anything
  double told_s = 1;        ///< that a rank stays at most until all read the fault; rank 0: twice
};

/// What a rank knows of itself. Called from threads of the pulse.
struct PulseSource {
  std::function<bool()> was_active;   ///< since the last call; one thread calls it
  std::function<std::string()> last;  ///< its last collective
  std::function<bool()> waits;        ///< whether it waits for other ranks
  /// What was lost, in words; called once. The main thread may hang: nothing may wait for it.
  std::function<void(const std::string&)> on_lost;
};

/// Signs of life between ranks, from a thread of each that goes on while its main thread computes,
/// writes or waits: a rank that is slow is told from one that is lost.
///
/// A rank is lost when it gives no sign for `silence_s` while the rank that watches it makes no
/// progress either: it is stopped, frozen, or its machine is gone. Each rank watches the next one,
/// and all of them the store, which rank 0 keeps. All are lost when no rank made progress or was
/// active for `idle_s`: they wait for one another and none works. A rank that stood still itself
/// (stopped and continued) accuses nobody for what it missed.
class RankPulse {
 public:
  struct Place {
    int64_t rank, world;
    bool judges_idle;  ///< false where work leaves no trace in this process, as on a GPU
  };
  RankPulse(Place place, std::unique_ptr<PulseStore> store, PulseSource source,
            PulseLimits limits = {});
  /// Tells the others that this rank leaves; does not wait for a store that does not answer.
  ~RankPulse();
  RankPulse(const RankPulse&) = delete;
  RankPulse& operator=(const RankPulse&) = delete;

  void progress();
  /// What was lost, if anything; the main thread may learn it by an error of its own.
  std::string lost() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< threads that cannot end keep it
};

}  // namespace nsa::train
