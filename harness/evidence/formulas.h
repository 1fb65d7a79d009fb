#pragma once
#include <string>

#include "harness/runbook/runbook.h"

namespace harness {

/// How `spec` becomes a figure, as a formula in words; "" for an estimator of no such name.
std::string formula_of(const MetricSpec& spec);

}  // namespace harness
