#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "harness/results/results.h"
#include "harness/stats/steps.h"

struct sqlite3;

namespace harness {

/// A run in the history.
struct HistoryRun {
  std::string id, started, runbook, hardware, build_id, verdict, head;
};

/// One figure of one run.
struct HistoryPoint {
  HistoryRun run;
  double value = 0;
  std::string unit;
};

/// A figure over time on one runbook and kind of machine, oldest first.
struct Trend {
  std::string runbook, hardware;
  std::vector<HistoryPoint> points;
  std::vector<stats::Step> steps;  ///< none for figures that are not all positive
};

/// Figures of earlier runs in an SQLite file: a cache over run folders and tars, which stay the
/// evidence. It may be deleted and made again.
class History {
 public:
  /// Opens or creates the file. Throws Error when it cannot, or when it is no history of this
  /// version.
  explicit History(const std::filesystem::path& file);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  /// Takes a run in, or again: known by its evidence head, which rendering it again does not
  /// change. Returns whether it is new.
  bool add(const Results& results, const std::string& head);

  /// Oldest first.
  std::vector<HistoryRun> runs() const;

  /// One trend for each runbook and hardware that has the metric; figures that are null or withheld
  /// are no points.
  std::vector<Trend> trends(const std::string& metric) const;

 private:
  void execute(const std::string& sql) const;
  sqlite3* db_ = nullptr;
};

}  // namespace harness
