// P21: a run on several ranks that lacks one.
#include <algorithm>
#include <thread>

#include "base/protocol/ranks.h"
#include "harness/fault_injection/faults/faults.h"
#include "harness/provenance/capture.h"
#include "harness/schema/error.h"

namespace harness::injection {
namespace {

/// A small training of `steps` steps as a run of `world` ranks, in one process; after `limit_s` it
/// is killed.
Captured train(const SelftestSetup& setup, const std::string& steps, const std::string& world,
               CaptureOptions options, double limit_s) {
  options.timeout_s = limit_s;
  options.with_stderr = true;
  options.without_prefix = "NSA_";
  return capture({(setup.bin_dir / "nsa-train").string(), "--model", "tiny_cpu", "--data",
                  "synthetic", "--batch", "1", "--seq-len", "64", "--steps", steps, "--warmup", "2",
                  "--device", "cpu", "--rank-timeout", "20", "--ranks", world},
                 options);
}

/// One rank of two.
Captured rank(const SelftestSetup& setup, int number, int port, const std::string& steps,
              double limit_s) {
  CaptureOptions options;
  const auto variables = base::protocol::rank_variables(number, 2, port);
  options.env.assign(variables.begin(), variables.end());
  return train(setup, steps, "2", options, limit_s);
}

/// The output of rank 0 when rank 1 is ended after `limit_s`.
Captured two_ranks(const SelftestSetup& setup, const std::string& steps, double limit_s) {
  const int port = base::protocol::free_port();
  if (port == 0) throw Error("no free port for two ranks");
  Captured second;
  std::thread other([&] { second = rank(setup, 1, port, steps, limit_s); });
  const Captured first = rank(setup, 0, port, steps, 60);
  other.join();
  return first;
}

std::string fault_line(const std::string& log) {
  const size_t at = log.find("RANK_FAULT");
  return at == std::string::npos ? ""
                                 : log.substr(at, std::min<size_t>(log.find('\n', at) - at, 160));
}

}  // namespace

/// One process of a run that is to have two ranks.
Injected inject_lone_rank(const SelftestSetup& setup) {
  const Captured lone = train(setup, "4", "2", {}, 60);
  const std::string seen = fault_line(lone.out);
  return {
      lone.exit > 0 && lone.exit < 128 && seen.find("2 ranks") != std::string::npos,
      seen.empty() ? "one process: exit " + std::to_string(lone.exit) + " " + lone.problem : seen};
}

Injected control_lone_rank(const SelftestSetup& setup) {
  const Captured lone = train(setup, "4", "1", {}, 60);
  return {lone.exit == 0 && fault_line(lone.out).empty(),
          "a run of one rank: exit " + std::to_string(lone.exit) + " " + lone.problem};
}

/// A rank killed while both train: the other one reports it and ends.
Injected inject_killed_rank(const SelftestSetup& setup) {
  const Captured first = two_ranks(setup, "1000000", 6);
  const std::string seen = fault_line(first.out);
  return {first.exit > 0 && first.exit < 128 && !seen.empty(),
          seen.empty() ? "rank 0: exit " + std::to_string(first.exit) + " " + first.problem : seen};
}

Injected control_both_ranks(const SelftestSetup& setup) {
  const Captured first = two_ranks(setup, "4", 60);
  return {first.exit == 0 && fault_line(first.out).empty(),
          "two ranks to their end: exit " + std::to_string(first.exit) + " " + first.problem};
}

}  // namespace harness::injection
