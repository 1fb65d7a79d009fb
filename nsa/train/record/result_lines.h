#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/protocol/emitter.h"
#include "nsa/train/loop/step_record.h"
#include "nsa/train/ranks/rank_place.h"
#include "nsa/train/record/judge.h"

namespace nsa::train {

/// What a training run writes, as lines of the worker protocol (base/protocol/README.md). A line
/// that cannot be written (full disk) throws std::runtime_error: then there is no `done`, and the
/// reader knows. Thread-safe: a watch may write while the loop does.
class ResultLines {
 public:
  ResultLines() = default;  ///< writes nothing
  /// Appends to the file `path`; "": to descriptor 3, inherited from the engine. Throws InputError
  /// where it cannot be opened.
  explicit ResultLines(const std::string& path);

  /// First line: the program and its environment.
  void hello(const std::string& build_id, const std::string& device, const RankPlace& place,
             const std::map<std::string, std::string>& versions,
             const std::vector<base::protocol::SwitchValue>& switches);
  /// Progress inside a step: `at` (load, forward, backward, optimizer, collective) was completed.
  void mark(const std::string& case_id, int64_t step, int64_t of, const std::string& at);
  /// A completed step with everything it measured. `earlier`: of a process before this one.
  void beat(const std::string& case_id, const StepRecord& record, int64_t of, bool earlier = false);
  /// Throws std::runtime_error for a value that is not finite.
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
  std::optional<base::protocol::Emitter> emitter_;
};

}  // namespace nsa::train
