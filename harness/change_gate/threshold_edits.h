#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace harness {

/// One change of what decides a verdict: a threshold, a tolerance, a baseline, a golden.
struct ThresholdEdit {
  std::string what;           ///< "phase ab, C-ab.slower: value", or "line"
  std::string before, after;  ///< empty: not there
};

/// What a change of a runbook does to its judgements: criteria that went, or whose threshold,
/// operator, unit, figure, severity or evidence changed; phases that went, or run, ask or count
/// otherwise. New criteria and new phases loosen nothing and are no edits. `after` is none when the
/// file was removed. A text that is not JSON is an edit of its own.
std::vector<ThresholdEdit> runbook_edits(std::string_view before,
                                         const std::optional<std::string>& after);

/// Pairs "-OLD" and "+NEW" lines of a diff, in order; at most `limit` edits, the rest in one.
std::vector<ThresholdEdit> line_edits(const std::vector<std::string>& lines, size_t limit = 20);

}  // namespace harness
