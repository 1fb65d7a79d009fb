#include "nsa/train/liveness/rank_pulse.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <thread>
#include <vector>

namespace nsa::train {
namespace {

constexpr const char* kLostKey = "pulse/lost";
/// A watcher without progress for this share of the limit may accuse: the fault stops it, too.
constexpr double kStalledShare = 0.8;

double pulse_now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

std::string sign_key(int64_t rank) { return "pulse/" + std::to_string(rank); }

/// A sign of life; one line of text in the store.
struct Sign {
  int64_t beat = 0;
  bool left = false;
  bool knows = false;  ///< what was lost
  bool waits = false;
  double idle_s = 0;  ///< without progress and activity
  std::string last;   ///< collective

  std::string to_text() const {
    std::ostringstream out;
    out << beat << ' ' << left << ' ' << knows << ' ' << waits << ' ' << idle_s << ' ' << last;
    return out.str();
  }
  static Sign of(const std::string& text) {
    Sign sign;
    std::istringstream in(text);
    in >> sign.beat >> sign.left >> sign.knows >> sign.waits >> sign.idle_s;
    std::getline(in >> std::ws, sign.last);
    return sign;
  }
};

/// What the exchanging thread remembers between two looks.
struct Look {
  double at_s = pulse_now_s();
  double active_s = pulse_now_s();  ///< when this process was active last
};

/// The watched rank as it was seen last.
struct Watch {
  int64_t beat = -1;
  double changed_s = pulse_now_s();
  std::string last = "none";
};

}  // namespace

struct RankPulse::State {
  Place place;
  std::unique_ptr<PulseStore> store;
  PulseSource source;
  PulseLimits limits;
  std::atomic<double> progress_s = pulse_now_s();
  std::atomic<double> request_s = 0;   ///< when the request under way began; 0: none is
  std::atomic<double> no_store_s = 0;  ///< when the store was lost; 0: it is there
  std::atomic<bool> told = false;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  int running = 2;  ///< threads
  std::string lost;

  int64_t watched() const { return (place.rank + 1) % place.world; }
  double stalled_s() const { return pulse_now_s() - progress_s; }
  std::string name_of(int64_t rank) const {
    return "rank " + std::to_string(rank) + " of " + std::to_string(place.world);
  }

  /// Waits; whether the thread goes on.
  bool pause(double seconds) {
    std::unique_lock lock(mutex);
    return !changed.wait_for(lock, std::chrono::duration<double>(seconds),
                             [this] { return stopping; });
  }
  void note_lost(const std::string& what) {
    const std::lock_guard lock(mutex);
    if (lost.empty()) lost = what;
  }
  void tell(const std::string& what) {
    note_lost(what);
    if (!told.exchange(true)) source.on_lost(what);
  }
  void thread_ended() {
    const std::lock_guard lock(mutex);
    --running;
    changed.notify_all();
  }

  void set(const std::string& key, const std::string& text) {
    request_s = pulse_now_s();
    store->set(key, text);
    request_s = 0;
  }
  std::optional<std::string> get(const std::string& key) {
    request_s = pulse_now_s();
    auto text = store->get(key);
    request_s = 0;
    return text;
  }

  void exchange();
  void guard();
  std::string find_lost(Watch& watch);
  std::string find_silent(Watch& watch);
  std::string find_all_idle();
  bool all_know();
  bool stay_for_others(Sign& own);
};

std::string RankPulse::State::find_silent(Watch& watch) {
  const auto text = get(sign_key(watched()));
  const Sign sign = text ? Sign::of(*text) : Sign{};
  if (sign.left) watch.changed_s = pulse_now_s();
  if (text && sign.beat != watch.beat) watch = {sign.beat, pulse_now_s(), sign.last};
  const double silent_s = pulse_now_s() - watch.changed_s;
  if (silent_s < limits.silence_s || stalled_s() < kStalledShare * limits.silence_s) return "";
  return name_of(watched()) + " gives no sign of life for " + seconds_text(silent_s) +
         "; its last collective: " + watch.last;
}

std::string RankPulse::State::find_all_idle() {
  double idle_s = 1e9;
  std::string lasts, hanging;
  for (int64_t rank = 0; rank < place.world; ++rank) {
    const auto text = get(sign_key(rank));
    const Sign sign = text ? Sign::of(*text) : Sign{};
    if (sign.left || sign.idle_s < limits.idle_s) return "";
    idle_s = std::min(idle_s, sign.idle_s);
    if (!sign.waits) hanging += (hanging.empty() ? "" : ", ") + name_of(rank);
    lasts +=
        (rank == 0 ? "" : "; ") + std::string("rank ") + std::to_string(rank) + " " + sign.last;
  }
  if (hanging.empty()) hanging = "no rank: each waits for others";
  return "hanging: " + hanging + "; none did anything for " + seconds_text(idle_s) +
         "; last collectives: " + lasts;
}

std::string RankPulse::State::find_lost(Watch& watch) {
  if (const auto known = get(kLostKey)) return *known;
  std::string found = find_silent(watch);
  if (found.empty() && place.judges_idle && place.rank == 0 && stalled_s() > limits.idle_s)
    found = find_all_idle();
  if (!found.empty()) set(kLostKey, found);
  return found;
}

bool RankPulse::State::all_know() {
  for (int64_t rank = 0; rank < place.world; ++rank) {
    const auto text = get(sign_key(rank));
    if (!text || !Sign::of(*text).knows) return false;
  }
  return true;
}

/// Until all know what was lost, or cannot: the end of a rank breaks the connections of those that
/// do not know it yet, and with rank 0 the store goes. Whether this thread goes on.
bool RankPulse::State::stay_for_others(Sign& own) {
  const double until = pulse_now_s() + (place.rank == 0 ? 2 : 1) * limits.told_s;
  own.knows = true;
  try {
    set(sign_key(place.rank), own.to_text());
    while (pulse_now_s() < until && !all_know())
      if (!pause(limits.interval_s / 4)) return false;
  } catch (const std::exception&) {  // rank 0 has left
    request_s = 0;
  }
  return true;
}

void RankPulse::State::exchange() {
  Look look;
  Watch watch;
  Sign own;
  try {
    for (bool goes_on = true; goes_on; goes_on = pause(limits.interval_s)) {
      const double now = pulse_now_s();
      if (now - look.at_s > limits.interval_s + limits.silence_s / 4) {
        progress_s = watch.changed_s = look.active_s = now;  // this rank stood still itself
      }
      look.at_s = now;
      if (source.was_active()) look.active_s = now;
      ++own.beat;
      own.idle_s = std::min(now - look.active_s, stalled_s());
      own.last = source.last();
      own.waits = source.waits();
      set(sign_key(place.rank), own.to_text());
      const std::string found = find_lost(watch);
      if (found.empty()) continue;
      note_lost(found);
      if (stay_for_others(own)) tell(found);
      break;
    }
    own.left = true;
    set(sign_key(place.rank), own.to_text());
  } catch (const std::exception&) {
    request_s = 0;
    no_store_s = pulse_now_s();
  }
  thread_ended();
}

/// Watches the store, whose calls have no end of their own where it is stopped.
void RankPulse::State::guard() {
  double looked_s = pulse_now_s();
  while (pause(limits.interval_s / 4)) {
    const double now = pulse_now_s();
    const bool stood_still = now - looked_s > limits.interval_s + limits.silence_s / 4;
    looked_s = now;
    if (stood_still && request_s > 0) request_s = now;
    if (stalled_s() < kStalledShare * limits.silence_s) continue;
    const std::string keeper = name_of(0) + ", which keeps the store where ranks meet, ";
    const std::string last = "; last collective here: " + source.last();
    if (request_s > 0 && now - request_s > limits.silence_s)
      tell(keeper + "does not answer for " + seconds_text(now - request_s) + last);
    if (no_store_s > 0 && now - no_store_s > limits.silence_s) tell(keeper + "is gone" + last);
  }
  thread_ended();
}

RankPulse::RankPulse(Place place, std::unique_ptr<PulseStore> store, PulseSource source,
                     PulseLimits limits)
    : state_(std::make_shared<State>()) {
  state_->place = place;
  state_->store = std::move(store);
  state_->source = std::move(source);
  state_->limits = limits;
  for (void (State::*work)() : {&State::exchange, &State::guard})
    std::thread([state = state_, work] { (state.get()->*work)(); }).detach();
}

RankPulse::~RankPulse() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, std::chrono::duration<double>(2 * state_->limits.told_s),
                           [this] { return state_->running == 0; });
}

void RankPulse::progress() { state_->progress_s = pulse_now_s(); }

std::string RankPulse::lost() const {
  const std::lock_guard lock(state_->mutex);
  return state_->lost;
}

}  // namespace nsa::train
