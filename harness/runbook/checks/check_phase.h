#pragma once
#include "harness/runbook/load.h"
#include "harness/schema/parse/source.h"

namespace harness {

/// One phase by itself: names, kind, arguments, cases, requirements, limits. Throws ConfigError.
void check_phase(const Source& source, const nlohmann::json& document, const PhaseSpec& phase,
                 const Kinds& kinds);

}  // namespace harness
