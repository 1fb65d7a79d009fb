#pragma once

namespace nsa::train {

/// Bytes of a MiB, the unit of every figure of memory.
inline constexpr double kMib = 1024.0 * 1024.0;

}  // namespace nsa::train
