// P21: a run on several ranks that lacks one.
#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "base/protocol/ranks.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/fault_injection/faults/faults.h"
#include "harness/provenance/capture.h"
#include "harness/schema/error.h"

namespace harness::injection {
namespace {

/// Within this time the others must have named a rank that is lost.
constexpr double kNamedWithinS = 10;
constexpr double kLostAfterS = 6;  ///< both train by then
constexpr double kLimitS = 60;

/// A small training as a run of several ranks.
struct Training {
  std::string steps = "4";
  std::string ranks = "2";
  std::string shard = "none";
  std::string rank_timeout_s = "20";
};

std::vector<std::string> command(const SelftestSetup& setup, const Training& training) {
  return {(setup.bin_dir / "nsa-train").string(),
          "--model",
          "tiny_cpu",
          "--data",
          "synthetic",
          "--batch",
          "1",
          "--seq-len",
          "64",
          "--steps",
          training.steps,
          "--warmup",
          "2",
          "--device",
          "cpu",
          "--shard",
          training.shard,
          "--rank-timeout",
          training.rank_timeout_s,
          "--ranks",
          training.ranks};
}

/// Runs a command; after `limit_s` it is killed.
Captured run(const std::vector<std::string>& argv, CaptureOptions options, double limit_s) {
  options.timeout_s = limit_s;
  options.with_stderr = true;
  options.without_prefix = "NSA_";
  return capture(argv, options);
}

Captured alone(const SelftestSetup& setup, const std::string& ranks) {
  return run(command(setup, {.ranks = ranks}), {}, kLimitS);
}

CaptureOptions variables_of(int rank, int port) {
  CaptureOptions options;
  const auto variables = base::protocol::rank_variables(rank, 2, port);
  options.env.assign(variables.begin(), variables.end());
  return options;
}

/// What rank 0 wrote, and how long it ran.
struct FirstRank {
  Captured output;
  double seconds = 0;
};

/// Two ranks, of which the second one runs as `second` and is killed after `limit_s`. When rank 0
/// has ended, `ended` is called.
FirstRank two_ranks(
    const SelftestSetup& setup, const Training& training, const std::vector<std::string>& second,
    double limit_s, const std::function<void()>& ended = [] {}) {
  const int port = base::protocol::free_port();
  if (port == 0) throw Error("no free port for two ranks");
  const auto begin = std::chrono::steady_clock::now();
  std::thread other([&] { run(second, variables_of(1, port), limit_s); });
  FirstRank first{run(command(setup, training), variables_of(0, port), kLimitS)};
  first.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ended();
  other.join();
  return first;
}

/// The line that names a rank's fault; empty: there is none.
std::string fault_line(const std::string& log) {
  const size_t at = std::min(log.find("RANK_FAULT"), log.find("HANG"));
  return at == std::string::npos ? ""
                                 : log.substr(at, std::min<size_t>(log.find('\n', at) - at, 160));
}

/// Rank 0 named the loss of rank 1 in a step and ended, in time.
Injected judge_loss(const FirstRank& first, const std::string& what) {
  const Captured& output = first.output;
  const std::string seen = fault_line(output.out);
  const bool named = seen.find("step ") != std::string::npos;
  const bool in_time = first.seconds <= kLostAfterS + kNamedWithinS;
  return {output.exit > 0 && output.exit < 128 && named && in_time,
          what + ": " +
              (seen.empty() ? "rank 0: exit " + std::to_string(output.exit) + " " + output.problem
               : in_time    ? seen
                            : "not within 10 s: " + seen)};
}

Injected lose_killed_rank(const SelftestSetup& setup, const std::string& shard) {
  const Training training{.steps = "1000000", .shard = shard};
  return judge_loss(two_ranks(setup, training, command(setup, training), kLostAfterS),
                    "killed, shard " + shard);
}

/// Rank 1 is stopped, not ended: its connections stay.
Injected lose_stopped_rank(const SelftestSetup& setup) {
  const Training training{.steps = "1000000", .shard = "full", .rank_timeout_s = "300"};
  const TempDir dir;
  const std::string tenths = std::to_string(static_cast<int>(10 * kLostAfterS));
  std::vector<std::string> second = {
      "/bin/sh", "-c",
      "ended=$1; shift; \"$@\" & p=$!; i=0; "
      "until [ -e \"$ended\" ] || [ $i = " +
          tenths +
          " ]; do sleep 0.1; i=$((i + 1)); done; "
          "kill -STOP $p; until [ -e \"$ended\" ]; do sleep 0.1; done; kill -KILL $p",
      "sh", (dir / "ended").string()};
  for (const std::string& word : command(setup, training)) second.push_back(word);
  return judge_loss(
      two_ranks(setup, training, second, kLimitS, [&] { write_bytes(dir / "ended", ""); }),
      "stopped, shard full");
}

Injected both(const Injected& a, const Injected& b) {
  return {a.as_wanted && b.as_wanted, a.seen + "; " + b.seen};
}

Injected train_to_the_end(const SelftestSetup& setup, const std::string& shard) {
  const Training training{.shard = shard};
  const Captured first = two_ranks(setup, training, command(setup, training), kLimitS).output;
  return {first.exit == 0 && fault_line(first.out).empty(),
          "two ranks to their end, shard " + shard + ": exit " + std::to_string(first.exit) + " " +
              first.problem};
}

}  // namespace

/// One process of a run that is to have two ranks.
Injected inject_lone_rank(const SelftestSetup& setup) {
  const Captured lone = alone(setup, "2");
  const std::string seen = fault_line(lone.out);
  return {
      lone.exit > 0 && lone.exit < 128 && seen.find("2 ranks") != std::string::npos,
      seen.empty() ? "one process: exit " + std::to_string(lone.exit) + " " + lone.problem : seen};
}

Injected control_lone_rank(const SelftestSetup& setup) {
  const Captured lone = alone(setup, "1");
  return {lone.exit == 0 && fault_line(lone.out).empty(),
          "a run of one rank: exit " + std::to_string(lone.exit) + " " + lone.problem};
}

/// A rank is killed, or stopped, while both train: the other one names it and ends.
Injected inject_lost_rank(const SelftestSetup& setup) {
  return both(lose_killed_rank(setup, "none"),
              both(lose_killed_rank(setup, "full"), lose_stopped_rank(setup)));
}

Injected control_both_ranks(const SelftestSetup& setup) {
  return both(train_to_the_end(setup, "none"), train_to_the_end(setup, "full"));
}

}  // namespace harness::injection
