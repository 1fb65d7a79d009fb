#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/results/results.h"

/// Two finished runs side by side. They are independent of each other, so that figures differ only
/// where their intervals do not touch; an A/B inside one run tells smaller differences apart.
namespace harness {

/// Why figures of the two runs are no comparison of the code alone: other hardware. Empty when it
/// is the same.
std::string hardware_difference(const Results& a, const Results& b);

/// Tables for `compare`: what the runs are, criterion by criterion, figure by figure.
std::vector<nlohmann::json> comparison_tables(const Results& a, const Results& b);

/// "higher", "lower", "not told apart", "equal", "new", "gone", "other unit", "other method",
/// "withheld" or "no figure". Either may be null.
std::string figure_change(const Metric* a, const Metric* b);

}  // namespace harness
