#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace reports {

/// A report file of another program as Markdown. `problem`: what failed, for the first line;
/// `tables` as in results.json.
std::string render_ingested_md(const std::string& title, const std::string& problem,
                               const std::vector<std::string>& deviations,
                               const std::vector<nlohmann::json>& tables);

}  // namespace reports
