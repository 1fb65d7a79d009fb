#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace reports {

/// What `why` reports of one profile that two runs have.
struct Difference {
  std::string phase;
  std::string text;                    ///< plain text
  std::string plot;                    ///< Markdown of its waterfall; empty: none is drawn
  std::vector<nlohmann::json> tables;  ///< as in results.json
};

/// Why a step of B takes another time than one of A, as Markdown for a comment. `surroundings`: a
/// table as in results.json.
std::string render_difference_md(const std::vector<Difference>& differences,
                                 const nlohmann::json& surroundings);

}  // namespace reports
