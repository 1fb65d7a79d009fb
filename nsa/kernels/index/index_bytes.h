#pragma once
#include <cstddef>

namespace nsa::kernels {

/// Shared memory that a block of threads of the choice by an index asks for: three tiles of 128
/// keys of 128 columns.
constexpr size_t kIndexBytes = size_t{3} * 128 * 128 * 2;

}  // namespace nsa::kernels
