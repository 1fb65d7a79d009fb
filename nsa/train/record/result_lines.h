#pragma once
#include <chrono>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "nsa/train/loop/step_record.h"
#include "nsa/train/ranks/rank_place.h"
#include "nsa/train/record/judge.h"

namespace nsa::train {

/// Emits the JSON lines of the worker protocol (harness/protocol/README.md), each appended with one
/// write. Text that is not UTF-8 is repaired; a non-finite number never enters a line. Throws
/// std::runtime_error when a line cannot be written (full disk): then there is no `done`, and the
/// reader knows.
class ResultLines {
 public:
  ResultLines() = default;               ///< writes nothing
  explicit ResultLines(int descriptor);  ///< writes to an open descriptor, which stays the caller's
  explicit ResultLines(const std::filesystem::path& path);  ///< appends to a file
  ~ResultLines();
  ResultLines(const ResultLines&) = delete;
  ResultLines& operator=(const ResultLines&) = delete;

  /// First line: who runs. `switches`: [{name, value, origin}].
  void hello(const std::string& build_id, const std::string& device, const RankPlace& place,
             const nlohmann::json& versions, const nlohmann::json& switches);
  /// Progress inside a step: `at` (load, forward, backward, optimizer, collective) was completed.
  void mark(const std::string& case_id, int64_t step, int64_t of, const std::string& at);
  /// A completed step with everything it measured.
  void beat(const std::string& case_id, const StepRecord& record, int64_t of);
  void sample(const std::string& case_id, const std::string& series, double value,
              const std::string& unit, int64_t order);
  void metric(const std::string& case_id, const Figure& figure);
  void check(const std::string& case_id, const Check& check);
  void table(const std::string& case_id, const std::string& id, const std::string& title,
             const std::vector<std::string>& columns, const nlohmann::json& rows);
  void finding(const Finding& finding);
  void case_end(const std::string& case_id, const std::string& failure);  ///< empty failure: ok
  void done();

 private:
  void emit(const std::string& type, nlohmann::json fields);
  double seconds() const;

  std::mutex mutex_;  ///< a watch may speak while the loop does
  int descriptor_ = -1;
  bool owned_ = false;
  int64_t num_lines_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double last_line_s_ = -1;
};

}  // namespace nsa::train
