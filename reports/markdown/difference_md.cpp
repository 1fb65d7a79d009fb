#include "reports/markdown/difference_md.h"

#include "reports/escape.h"
#include "reports/markdown/sections.h"

namespace reports {

std::string render_difference_md(const std::vector<Difference>& differences,
                                 const nlohmann::json& surroundings) {
  std::string out = "# Why a step of B takes another time than one of A\n\n";
  for (const Difference& each : differences) {
    out += "## " + escape(each.phase) + "\n\n" + escape(each.text) + "\n\n" + each.plot;
    for (const nlohmann::json& table : each.tables) out += table_markdown(table);
  }
  return out + table_markdown(surroundings) +
         "Every moment of a recorded step belongs to one row, so that the last column of each "
         "table "
         "adds up to what the profiles hold. What they leave of the measured difference is what "
         "recording changes, or what varies between steps.\n";
}

}  // namespace reports
