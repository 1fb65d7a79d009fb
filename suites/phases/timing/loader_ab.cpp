// Starts of the training loader, arms alternating: without warm-up, with 8 and 16 batches, and with
// a warm-up beside the prefetch, as an earlier project had it. All arms must produce the same
// batches.
#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "base/hash/sha256.h"
#include "nsa/program/input_error.h"
#include "nsa/train/data/batch_loader.h"
#include "nsa/train/data/corpus_folder.h"
#include "suites/phases/phase.h"

namespace suites {
namespace {

using nsa::train::BatchLoader;
using nsa::train::BatchShape;
using nsa::train::LoaderOptions;
using nsa::train::LoaderTelemetry;

struct LoaderArm {
  std::string name;
  LoaderOptions options;
};

std::vector<LoaderArm> loader_arms() {
  return {{"off", {.warmup_batches = 0}},
          {"w8", {.warmup_batches = 8}},
          {"w8.aa", {.warmup_batches = 8}},  // again (A/A): the two others are compared with it
          {"w16", {.warmup_batches = 16}},
          {"concurrent", {.warmup_batches = 16, .concurrent_warmup = true}}};
}

/// Rows that take 10 ms each. Fault slow_reads: off alone warms up; fault overlapping: reads of
/// warm-up and prefetch meet however the threads are scheduled.
class SlowSource : public nsa::train::TokenSource {
 public:
  explicit SlowSource(const nsa::train::TokenSource& base) : base_(base) {}
  void read_row(int64_t row, std::span<uint8_t> out) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    base_.read_row(row, out);
  }
  bool is_real() const override { return base_.is_real(); }
  std::string describe() const override { return base_.describe(); }

 private:
  const nsa::train::TokenSource& base_;
};

class LoaderAb {
 public:
  explicit LoaderAb(const PhaseCase& one)
      : one_(one),
        shape_{.rows = one.args.get_int("B", 4, 1),
               .row_tokens = one.args.get_int("S", 2048, 1) + 1},
        batches_(one.args.get_int("batches", 32, 1)),
        rounds_(one.args.get_int("rounds", 3, 1)),
        step_us_(one.args.get_int("step_us", 2000, 0)),
        fault_(one.args.get_text("fault", "")) {
    static const std::vector<std::string> kFaults = {"", "overlapping", "other_order", "slow_reads",
                                                     "no_contrast"};
    if (std::ranges::find(kFaults, fault_) == kFaults.end())
      throw ConfigError(
          "args.fault must be overlapping, other_order, slow_reads or no_contrast, got '" + fault_ +
          "'");
    shape_.stride = shape_.rows;
    const std::string data = one.args.get_text("data", "local_text");
    const std::string root = one.args.get_text("data_root", ".data");
    source_ = data == "synthetic"
                  ? nsa::train::make_synthetic_source(256, one.seed())
                  : nsa::train::open_corpus_source(nsa::train::corpus_folder(root, data), data,
                                                   one.seed(), shape_.row_tokens, shape_.rows);
  }

  std::string run() {
    one_.emitter.metric({.case_id = one_.id,
                         .name = "data.real_bool",
                         .value = source_->is_real(),
                         .unit = "bool"});
    const std::vector<LoaderArm> all = loader_arms();
    for (int64_t round = 0; round < rounds_; ++round) {
      for (size_t i = 0; i < 2 * all.size(); ++i)  // every round there and back
        measure(all[i < all.size() ? i : 2 * all.size() - 1 - i], round, static_cast<int64_t>(i));
      one_.emitter.beat({.case_id = one_.id, .step = round + 1, .of = rounds_, .at = "round"});
    }
    for (const LoaderArm& arm : all)
      if (!arm.name.ends_with(".aa")) emit_overlap(arm);
    if (failed_.empty() && read_ahead_["w8"] == read_ahead_["off"])
      return "NO_CONTRAST: arms off and w8 both read " + std::to_string(read_ahead_["off"]) +
             " batches before the first step";
    return failed_;
  }

 private:
  /// One start, and batches taken at the pace of a step.
  void measure(const LoaderArm& arm, int64_t round, int64_t order) {
    LoaderOptions options = arm.options;
    options.concurrent_warmup |= fault_ == "overlapping" && options.warmup_batches > 0;
    if (fault_ == "no_contrast") options = loader_arms().front().options;
    if (fault_ == "slow_reads") options.warmup_batches = arm.name == "off" ? 1 : 0;
    const SlowSource slow(*source_);
    const nsa::train::TokenSource& as_is = *source_;
    const bool late = fault_ == "other_order" && arm.name != "off";
    const bool slowed = fault_ == "slow_reads" || fault_ == "overlapping";
    BatchLoader loader(slowed ? slow : as_is, shape_, options, late ? 1 : 0);
    base::Sha256 content;
    for (int64_t k = 0; k < batches_; ++k) {
      content.update(loader.next());
      std::this_thread::sleep_for(std::chrono::microseconds(step_us_));
    }
    const LoaderTelemetry t = loader.telemetry();
    const double later = t.waited_ms - t.first_batch_ms;
    const auto steps = static_cast<double>(batches_ - 1);
    sample("start." + arm.name, t.start_ms, round, order);
    sample("first_batch." + arm.name, t.first_batch_ms, round, order);
    if (steps > 0) sample("wait." + arm.name, later / steps, round, order);
    overlaps_[arm.name] += t.overlapping_reads;
    read_ahead_[arm.name] += t.warmup_batches;
    stalled_ms_[arm.name] += later;
    runs_[arm.name] += 1;
    check_content(arm, content.hex());
  }

  void check_content(const LoaderArm& arm, const std::string& hash) {
    if (first_hash_.empty()) first_hash_ = hash;
    const bool same = hash == first_hash_;
    if (!same && failed_.empty()) failed_ = "arm " + arm.name + " hands out other batches";
    if (same && !reported_.insert(arm.name).second) return;
    one_.emitter.check({.case_id = one_.id,
                        .id = "order/" + arm.name,
                        .ok = same,
                        .code = same ? "" : "ORDER_DIFFERS",
                        .detail = std::to_string(batches_) + " batches, sha256 " + hash});
  }

  /// The counter of reads in flight together; only the historical arm may have some.
  void emit_overlap(const LoaderArm& arm) {
    const int64_t overlaps = overlaps_[arm.name];
    one_.emitter.metric({.case_id = one_.id,
                         .name = arm.name + ".overlap_count",
                         .value = overlaps,
                         .unit = "count"});
    const double all_ms = stalled_ms_[arm.name] +
                          static_cast<double>(runs_[arm.name] * (batches_ - 1) * step_us_) / 1000;
    one_.emitter.metric({.case_id = one_.id,
                         .name = arm.name + ".stall_ratio",
                         .value = all_ms > 0 ? stalled_ms_[arm.name] / all_ms : 0.0,
                         .unit = "ratio"});
    if (arm.options.concurrent_warmup) return;
    one_.emitter.check(
        {.case_id = one_.id,
         .id = "overlap/" + arm.name,
         .ok = overlaps == 0,
         .code = overlaps == 0 ? "" : "LOADER_STALL",
         .detail = std::to_string(overlaps) + " reads of warm-up and prefetch in flight together"});
  }

  void sample(const std::string& series, double ms, int64_t round, int64_t order) {
    one_.emitter.sample({.case_id = one_.id,
                         .series = series,
                         .value = ms,
                         .unit = "ms",
                         .round = round,
                         .order = order});
  }

  const PhaseCase& one_;
  BatchShape shape_;
  int64_t batches_, rounds_, step_us_;
  std::string fault_;
  std::unique_ptr<nsa::train::TokenSource> source_;
  std::string first_hash_, failed_;
  std::set<std::string> reported_;
  std::map<std::string, int64_t> overlaps_, runs_, read_ahead_;
  std::map<std::string, double> stalled_ms_;
};

}  // namespace

std::string run_loader_ab(const PhaseCase& one) {
  if (one.in.mode != "time")
    throw ConfigError("mode of loader_ab must be time, got '" + one.in.mode + "'");
  return LoaderAb(one).run();
}

}  // namespace suites
