#pragma once
#include <string>

namespace nsa {

/// Field `build_id` of build_id.json beside the running program; "unknown" when there is no such
/// file or field.
std::string build_id();

}  // namespace nsa
