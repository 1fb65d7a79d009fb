// Where the time of training steps goes on the device: a profile of a few steps, what recording
// costs, what the host does meanwhile. Times of this process are never anybody's result.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/trace/chrome.h"
#include "harness/trace/trace_file.h"
#include "suites/instrument/ceilings.h"
#include "suites/instrument/clock_probe.h"
#include "suites/instrument/cupti/activity_collector.h"
#include "suites/instrument/dilation.h"
#include "suites/phases/phase_ranks.h"
#include "suites/phases/profiles/path_rules.h"
#include "suites/phases/profiles/profile_lines.h"
#include "suites/phases/profiles/profile_session.h"
#include "suites/phases/profiles/profiled_step.h"
#include "suites/phases/profiles/recording_cost.h"
#include "suites/phases/profiles/trace_faults.h"

namespace suites {
namespace {

namespace trace = harness::trace;

constexpr double kMostStretchPct = 3;
constexpr double kMostOffPct = 2;  ///< how far the shares may be from 100 %
/// Recording off or on in a pair lasts about this long, in steps: one disturbed step of a short
/// training step shall not decide.
constexpr double kArmMs = 300;
constexpr int64_t kMostArmSteps = 8;
/// A card that was idle holds its highest clock for the first tenths of a second of load, which
/// would make every later step look longer.
constexpr double kWarmMs = 1000;
constexpr int64_t kMostWarmSteps = 500;
constexpr int64_t kStepsUntilGraph = 5;  ///< the last of them is a launch of the graph

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

class Hotspots {
 public:
  /// Results go to `one`, which only rank 0 reports; beats of steps go to `watched` on every rank.
  Hotspots(const PhaseCase& one, const PhaseRanks& ranks, base::protocol::Emitter& watched)
      : one_(one),
        ranks_(ranks),
        watched_(watched),
        session_(one),
        steps_(one.args.get_int("steps", 5, 1)),
        graph_(one.args.get_bool("cuda_graph", false)),
        warmup_(std::max(one.args.get_int("warmup", 3, 1), graph_ ? kStepsUntilGraph : 1)),
        pairs_(one.args.get_int("pairs", 12, 6)),
        chrome_steps_(one.args.get_int("chrome_steps", 2, 0)),
        cost_rounds_(one.args.get_int("cost_rounds", 0, 0)),
        step_(make_profiled_step(one, ranks.group.get())) {}

  std::string run() {
    warm_up();
    measure_host();
    measure_dilation_of_steps();
    if (cost_rounds_ > 0) measure_cost_of_parts();
    measure_rate_against_length();
    record();
    step_.finish();
    if (ranks_.group) ranks_.group->leave();
    return "";
  }

 private:
  /// A graph is captured in these steps, and its nodes are placed in the ranges that are open then.
  void warm_up() {
    const auto steps = [this] {
      for (int64_t i = 0; i < warmup_; ++i) take_step("warm-up");
    };
    if (graph_)
      session_.collector().watch_captures(steps, step_.range);
    else
      steps();
    const double ms = ranks_.mean(take_step("warm-up"));  // all ranks take as many steps
    more_warmup_ = std::clamp<int64_t>(std::llround(kWarmMs / ms), 1, kMostWarmSteps);
    for (int64_t i = 1; i < more_warmup_; ++i) take_step("warm-up");
  }

  double take_step(const char* what) {
    const double ms = step_.run_ms();
    watched_.beat({.case_id = one_.id, .step = ++done_, .of = total(), .at = what});
    return ms;
  }

  double mean_step_ms(const char* what) {
    double ms = 0;
    for (int64_t i = 0; i < steps_; ++i) ms += take_step(what);
    return ms / static_cast<double>(steps_);
  }

  void note_steps(const char* when, double ms) {
    noted_.push_back({when, ms, sm_clock_mhz(one_.device).value()});
  }

  int64_t total() const {
    return 3 * warmup_ + more_warmup_ + 5 * steps_ + 2 * pairs_ * (1 + arm_steps_) +
           16 * cost_rounds_ + 2;
  }

  /// CPU time of all threads over wall time, recording off: about 100 % when one thread never
  /// sleeps.
  void measure_host() {
    const double before = cpu_seconds();
    const double rank_ms = mean_step_ms("host");
    const double wall_s = rank_ms * static_cast<double>(steps_) / 1e3;
    emit_figure(one_, "host.cpu_pct", 100 * (cpu_seconds() - before) / wall_s, "pct");
    note_steps("before anything was recorded", rank_ms);
    step_ms_ = ranks_.mean(rank_ms);
    arm_steps_ = std::clamp<int64_t>(std::llround(kArmMs / step_ms_), 1, kMostArmSteps);
    emit_figure(one_, "step.unrecorded_ms", step_ms_, "ms");
    emit_figure(one_, "step.tokens_count", static_cast<double>(step_.tokens), "count");
  }

  /// Recording is switched on once before, because the first time costs more than any later one.
  void measure_dilation_of_steps() {
    session_.record([this] { take_step("on"); });
    pairs_seen_ = time_off_on({.run_ms = [this](const char* what) { return take_step(what); },
                               .on = [this] { session_.collector().start(); },
                               .off =
                                   [this] {
                                     session_.collector().stop();
                                     session_.collector().clear();  // so that blocks never run out
                                   }},
                              pairs_, arm_steps_);
    emit_dilation(pairs_seen_);
    emit_residual(pairs_seen_);
  }

  /// The same by launch: what bounds a step decides how much of it the step's time shows.
  void emit_launch_cost(const trace::Profile& profile) {
    if (profile.launches == 0)
      return emit_missing(one_, "profile.launch_cost_us", "us", "a step launches nothing");
    std::vector<double> more_ms;
    for (const OffOnPair& pair : pairs_seen_) more_ms.push_back(pair.on_ms - pair.off_ms);
    const auto launches =
        static_cast<double>(profile.launches) / static_cast<double>(profile.steps);
    emit_figure(one_, "profile.launch_cost_us", 1e3 * median(std::move(more_ms)) / launches, "us");
  }

  /// What stays behind when recording is switched off: the pairs alone do not show it.
  void emit_residual(const std::vector<OffOnPair>& pairs) {
    std::vector<double> off;
    for (const OffOnPair& pair : pairs) off.push_back(pair.off_ms);
    const double off_ms = median(std::move(off));
    note_steps("recording off, in the pairs", off_ms);
    emit_figure(one_, "profile.residual_pct", 100 * (off_ms / step_ms_ - 1), "pct");
  }

  void measure_cost_of_parts() {
    one_.emitter.table(
        {.case_id = one_.id,
         .id = "recording_cost",
         .title = "What recording costs part by part: median step, " +
                  std::to_string(cost_rounds_) + " rounds",
         .columns = {"recorded", "step, ms", "longer than untouched, %"},
         .rows = recording_cost_rows(
             session_.collector(), [this] { return take_step("cost"); }, step_ms_, cost_rounds_)});
  }

  void emit_dilation(const std::vector<OffOnPair>& pairs) {
    const Dilation dilation = measure_dilation(pairs);
    emit_figure(one_, "profile.dilation_pct", dilation.pct, "pct");
    emit_figure(one_, "profile.dilation_lo_pct", dilation.lo_pct, "pct");
    emit_figure(one_, "profile.dilation_hi_pct", dilation.hi_pct, "pct");
    nlohmann::json rows = nlohmann::json::array();
    for (size_t i = 0; i < pairs.size(); ++i)
      rows.push_back(
          {i + 1, pairs[i].off_ms, pairs[i].on_ms, 100 * (pairs[i].on_ms / pairs[i].off_ms - 1)});
    one_.emitter.table({.case_id = one_.id,
                        .id = "dilation",
                        .title = "What recording costs: the median of " +
                                 std::to_string(arm_steps_) + " steps with recording off and on",
                        .columns = {"pair", "off, ms", "on, ms", "longer by, %"},
                        .rows = rows});
  }

  /// A step of half the tokens: a step that the device bounds gets faster, one that the host bounds
  /// does not.
  void measure_rate_against_length() {
    const int64_t half = step_.seq_len / 2;
    if (half < 1) return emit_missing(one_, "step.half_length_ratio", "ratio", "S is 1");
    const ProfiledStep shorter = make_profiled_step(one_, ranks_.group.get(), half);
    for (int64_t i = 0; i < warmup_; ++i) shorter.run_ms();
    double ms = 0;
    for (int64_t i = 0; i < steps_; ++i) {
      ms += shorter.run_ms();
      watched_.beat({.case_id = one_.id, .step = ++done_, .of = total(), .at = "half length"});
    }
    emit_figure(one_, "step.half_length_ratio", ms / static_cast<double>(steps_) / step_ms_,
                "ratio");
  }

  void emit_ceilings() {
    ceilings_ = measure_ceilings(one_.device, step_.type);
    emit_figure(one_, "ceiling.matmul_tflop_s", ceilings_.tflop_s, "tflop_s");
    emit_figure(one_, "ceiling.copy_gb_s", ceilings_.gb_s, "gb_s");
  }

  void record() {
    for (int64_t i = 0; i < warmup_; ++i) take_step("warm-up");
    note_steps("right before the profile", mean_step_ms("before"));
    double recorded_ms = 0;
    const auto settle = [&] {
      for (int64_t i = 0; i < warmup_; ++i) take_step("settle");
    };
    session_.record([&] { recorded_ms = mean_step_ms("record"); }, settle);
    note_steps("of the profile", recorded_ms);
    take_step("settle");
    note_steps("right behind the profile", mean_step_ms("behind"));
    emit_ceilings();                // products of matrices take more power than most steps
    if (!ranks_.reports()) return;  // the files of a profile are those of rank 0
    emit_stretch(recorded_ms);
    one_.emitter.table({.case_id = one_.id,
                        .id = "steps",
                        .title = "Means of " + std::to_string(steps_) +
                                 " steps through the phase, "
                                 "and the clock of the SMs behind each",
                        .columns = {"steps", "mean, ms", "SM clock, MHz"},
                        .rows = noted_});
    trace::Trace recorded = session_.save(step_.range, chrome_steps_);
    emit_paths(recorded);
    if (one_.args.get_text("fault", "") == "P30")
      count_twice(recorded, step_.range, "nsa.sel_attn", "nsa.win_attn");
    const trace::Profile profile = trace::profile(recorded, step_.range);
    const Roof roof{.work = step_.work, .ceilings = ceilings_};
    emit_profile(one_, profile, kMostOffPct, roof, step_.ran());
    emit_roofline(one_, profile, roof);
    emit_launch_cost(profile);
    refuse_losses(one_, recorded.dropped);
  }

  /// The steps of this very profile against those before anything was recorded.
  void emit_stretch(double recorded_ms) {
    const double pct = 100 * (recorded_ms / step_ms_ - 1);
    emit_figure(one_, "profile.stretch_pct", pct, "pct");
    if (pct <= kMostStretchPct) return;
    one_.emitter.finding({.code = "PROFILE_DILATED",
                          .symptom = "the recorded steps took " + std::to_string(recorded_ms) +
                                     " ms, " + std::to_string(pct) +
                                     " % longer than steps before anything was recorded"});
  }

  void emit_paths(const trace::Trace& recorded) {
    nlohmann::json rows = nlohmann::json::array();
    prove_paths(one_, "", recorded, trace::attribute(recorded, step_.range), step_.ran(), rows);
    one_.emitter.table({.case_id = one_.id,
                        .id = "paths",
                        .title = "Kernels that ran for each stage",
                        .columns = {"asked for", "stage", "requested", "ran", "kernels"},
                        .rows = rows});
  }

  const PhaseCase& one_;
  const PhaseRanks& ranks_;
  base::protocol::Emitter& watched_;
  ProfileSession session_;
  const int64_t steps_;
  const bool graph_;
  const int64_t warmup_, pairs_, chrome_steps_, cost_rounds_;
  const ProfiledStep step_;
  int64_t done_ = 0, more_warmup_ = 1, arm_steps_ = kMostArmSteps;
  double step_ms_ = 0;
  std::vector<OffOnPair> pairs_seen_;
  nlohmann::json noted_ = nlohmann::json::array();  ///< rows: steps, their mean, SM clock
  trace::Ceilings ceilings_;
};

}  // namespace

std::string run_hotspots(const PhaseCase& one) {
  const PhaseRanks ranks = open_ranks(one, 1);
  const UnreportedCase unreported(one);
  return Hotspots(ranks.reports() ? one : unreported.one(), ranks, one.emitter).run();
}

}  // namespace suites
