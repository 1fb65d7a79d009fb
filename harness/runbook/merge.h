#pragma once
#include <nlohmann/json.hpp>

namespace harness {

/// `base` changed by `child`, which extends it: objects merge key by key, `phases` and `criteria`
/// by id (new ones go to the end), everything else of the child replaces. Positions stay those of
/// the text each value came from. Both must have passed the reader (ReadMode::kPartial).
nlohmann::json merge_runbooks(const nlohmann::json& base, const nlohmann::json& child);

}  // namespace harness
