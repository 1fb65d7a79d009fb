#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace nsa {

/// The device that a program was asked for: cpu, cuda or cuda:N, ready for use and the current one.
/// Throws InputError for another word and for a device that this process does not see.
at::Device open_device(const std::string& name);

}  // namespace nsa
