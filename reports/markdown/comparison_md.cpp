#include "reports/markdown/comparison_md.h"

#include "reports/escape.h"
#include "reports/markdown/sections.h"

namespace reports {

std::string render_comparison_md(const std::string& other_hardware,
                                 const std::vector<nlohmann::json>& tables) {
  std::string out;
  if (!other_hardware.empty())
    out += "**Other hardware: " + escape(other_hardware) +
           ". Figures of time and memory compare machines, not code.**\n\n";
  out += "# A against B\n\n";
  for (const nlohmann::json& table : tables) out += table_markdown(table);
  return out +
         "The runs are independent: a measured figure is higher or lower only where the intervals "
         "do not touch. B / A holds the widest interval that both allow. Smaller differences need "
         "an A/B inside one run.\n";
}

}  // namespace reports
