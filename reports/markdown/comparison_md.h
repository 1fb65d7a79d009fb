#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace reports {

/// Two runs side by side as Markdown. `other_hardware`: what differs, for the first line; empty
/// when nothing does. `tables` as in results.json.
std::string render_comparison_md(const std::string& other_hardware,
                                 const std::vector<nlohmann::json>& tables);

}  // namespace reports
