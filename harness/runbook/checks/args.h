#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/runbook/load.h"
#include "harness/schema/parse/source.h"

/// Arguments of phases: declared by the kind, typed, with defaults; --set changes them.
namespace harness {

inline constexpr int64_t kMostProcesses = 999;

/// Why the first of the looks that `max_processes` allows can decide nothing; empty when it can.
std::string looks_problem(const PhaseSpec& phase);

/// Why `value` is not of the declared type ("must be an int, got 'x'"); empty when it is.
std::string arg_type_problem(const std::string& type, const nlohmann::json& value);

/// Throws ConfigError for an argument that `kind` does not declare (nearest name) or of a wrong
/// type. `where` names the place in the message.
void check_args(const Source& source, const nlohmann::json& args, const KindSpec& kind,
                const std::string& where);

/// `args` with every declared argument that is absent at its default.
nlohmann::json with_defaults(const nlohmann::json& args, const KindSpec& kind);

/// Applies "phase.key=value" texts to `runbook`, whose phases name known kinds. Returns a deviation
/// for each change of a key that the phase does not mark `free`. A phase with `max_processes` takes
/// a larger one, too. Throws ConfigError for a text of another form, an unknown phase or argument
/// (nearest name), a value of the wrong type, a `max_processes` that is not larger, and a key set
/// twice.
std::vector<Deviation> apply_overrides(const std::vector<std::string>& overrides,
                                       const Kinds& kinds, Runbook& runbook);

}  // namespace harness
