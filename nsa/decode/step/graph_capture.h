#pragma once

namespace nsa {

/// Whether the current CUDA stream records a graph; false in a build without CUDA code.
bool is_capturing();

}  // namespace nsa
