#pragma once
#include <cstdint>
#include <string>

#include "base/protocol/messages.h"

/// Words of the progress display; no state of a terminal.
namespace harness::cli {

/// "[########............]"; empty while `of` is unknown.
std::string bar(int64_t step, int64_t of, size_t width);

/// "step 3/40 forward, 1200 tok/s, 12 s left"; whatever a worker wrote into its beat stays text.
std::string beat_text(const base::protocol::Beat& beat, double eta_s);

/// The first `columns` characters of a line, the last one "…" where something was cut; 0: all.
std::string fit(const std::string& line, size_t columns);

}  // namespace harness::cli
