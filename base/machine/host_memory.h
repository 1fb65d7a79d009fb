#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace base {

/// Bytes that this process can still take without swapping: MemAvailable of /proc/meminfo, or what
/// the limits of its control groups (v1 or v2, with those above them) leave, whichever is less; the
/// page cache counts as free. Empty where the system does not state it. `root` stands in front of
/// the paths that are read.
std::optional<int64_t> available_memory(const std::string& root = "");

/// "12.3 GiB".
std::string gib_text(double bytes);

}  // namespace base
