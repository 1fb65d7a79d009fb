#include "reports/markdown/ingested_md.h"

#include "reports/escape.h"
#include "reports/markdown/sections.h"

namespace reports {

std::string render_ingested_md(const std::string& title, const std::string& problem,
                               const std::vector<std::string>& deviations,
                               const std::vector<nlohmann::json>& tables) {
  std::string out = "# " + escape(title) + "\n\n";
  if (!problem.empty()) out += "**Not as it should be: " + escape(problem, 300) + "**\n\n";
  for (const std::string& each : deviations) out += "- " + escape(each) + "\n";
  if (!deviations.empty()) out += "\n";
  for (const nlohmann::json& table : tables) out += table_markdown(table);
  return out;
}

}  // namespace reports
