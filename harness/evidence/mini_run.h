#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/evidence/bundle.h"

namespace harness {

/// What is injected in a mini run; the defaults give a run whose verdict is GO.
struct MiniRun {
  double speedup = 2;        ///< of arm v2 over arm v1
  bool mismatch = false;     ///< one check of phase `conform` fails with ORACLE_MISMATCH
  bool conform_runs = true;  ///< false: phase `conform` is NOT_RUN (skipped on the command line)
  std::string case_reason = "";  ///< not empty: case `odd` of phase `conform` fails with this text
  double v2_clock_mhz =
      0;                 ///< not 0: the samples carry clocks, v1's is 1800, and v2's time follows
  double aa_factor = 1;  ///< v1 measured again, in alternation so many times slower and faster
  nlohmann::json baseline = nullptr;   ///< content of baseline.json; null: no file
  int64_t max_processes = 0;           ///< of phase `speed`, whose first look has 10 then, else 8
  bool confirm = false;                ///< of phase `speed`, the same
  bool criterion_on_baseline = false;  ///< adds C-SPEED-BASE: v2 time within 1.1 x baseline
};

/// Writes the raw evidence of a small run of runbook `mini` with invented numbers into the empty
/// folder `dir`: phase `conform` (2 cases, 6 checks), phase `speed` (8 processes, arms v1 and v2),
/// phase `cards`, DEFERRED for want of a GPU. For tests, and for the faults that `selftest` injects
/// in files; nothing of it is a measurement.
void write_mini_run(const std::filesystem::path& dir, const MiniRun& injected = {});

/// Raw evidence of one process of phase `speed` in which v2 is `injected.speedup` times as fast.
void write_mini_process(const std::filesystem::path& dir, const std::string& group,
                        const MiniRun& injected);

/// A baseline that fits the mini run: v2 took 2 ms.
nlohmann::json mini_baseline();

/// The renderer of mini runs: report.md and summary.md with the verdict word and every criterion.
std::map<std::string, std::string> render_mini_run(const Results& results);

/// write_mini_run and write_bundle.
Written finish_mini_run(const std::filesystem::path& dir, const MiniRun& injected = {});

}  // namespace harness
