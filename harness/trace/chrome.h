#pragma once
#include <filesystem>
#include <ostream>

#include "harness/trace/trace.h"

namespace harness::trace {

/// The first `most_steps` steps as a Chrome trace, which chrome://tracing and ui.perfetto.dev open:
/// a track a host thread with ranges and calls, a track a stream; work that overlaps on one stream
/// gets rows ("stream 7 (b)"), because viewers drop overlapping events of one track. Arrows lead
/// from calls to their kernels. Throws harness::Error as `attribute` does, and without a step.
void write_chrome(std::ostream& out, const Trace& trace, std::string_view step_name,
                  int64_t most_steps);

/// The same into a file, compressed by gzip where its name ends in .gz.
void write_chrome_file(const std::filesystem::path& file, const Trace& trace,
                       std::string_view step_name, int64_t most_steps);

}  // namespace harness::trace
