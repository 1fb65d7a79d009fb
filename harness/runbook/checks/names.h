#pragma once
#include <string>
#include <string_view>
#include <vector>

/// The closed lists and the grammar of names in runbooks and kinds (docs/writing_a_runbook.md).
namespace harness {

/// ms us s tok_s mib gb_s tflop_s pct ratio count bool nat
const std::vector<std::string>& metric_units();

/// >= <= > < ==
const std::vector<std::string>& comparison_ops();

/// tests samples record profile
const std::vector<std::string>& evidence_kinds();

/// check time profile trace
const std::vector<std::string>& worker_modes();

/// builtin nsa-worker nsa-tests nsa-bench nsa-train
const std::vector<std::string>& program_names();

/// cpu cuda
const std::vector<std::string>& device_names();

/// int number string bool list object
const std::vector<std::string>& arg_types();

/// Whether a metric of this estimator compares by value (`method: exact`); the others have an
/// interval and compare by its bound.
bool is_exact_estimator(std::string_view estimator);

/// Estimators a kind may name: those of the table in harness/stats/estimators/estimators.h.
const std::vector<std::string>& known_estimators();

/// Lower case letter, then lower case letters, digits and _: phases, cases, runbooks, segments.
bool is_plain_name(std::string_view name);

/// C- and lower case letters, digits, '.', '_' or '-'.
bool is_criterion_id(std::string_view id);

/// Why `name` is no `subject[.case].quantity_unit` (`with_phase`: `phase.` before it); empty when
/// it is one. `unit` must be its suffix.
std::string metric_name_problem(std::string_view name, std::string_view unit, bool with_phase);

bool contains(const std::vector<std::string>& list, std::string_view name);

/// "a, b, c"
std::string joined(const std::vector<std::string>& list);

}  // namespace harness
