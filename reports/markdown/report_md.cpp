#include "reports/markdown/sections.h"
#include "reports/plots/plot.h"
#include "reports/render.h"

namespace reports {

/// The whole report, in the order in which a reader asks.
std::string render_report_md(const Model& model) {
  std::string out = headline(model);
  for (const auto section :
       {environment_section, +[](const Model& m) { return steps_section(m); },
        +[](const Model& m) { return criteria_section(m); }, revisions_section,
        +[](const Model& m) { return findings_section(m); },
        +[](const Model& m) { return comparisons_section(m); }, samples_section, history_section,
        plots_section, hotspots_section, tables_section, recommended_section,
        +[](const Model& m) { return deviations_section(m); }, figures_section, settings_section,
        artifacts_section, reproduce_section, self_test_section})
    out += section(model);
  out += "---\nWritten by nsa-validate from results.json alone.\n";
  return out;
}

}  // namespace reports
