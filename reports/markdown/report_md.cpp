#include "reports/markdown/sections.h"
#include "reports/render.h"

namespace reports {

/// The whole report, in the order in which a reader asks: the answer first, the record last.
std::string render_report_md(const Model& model) {
  std::string out = first_screen(model);
  for (const auto section :
       {+[](const Model& m) { return answers_section(m); }, recommended_section,
        +[](const Model& m) { return next_steps_section(m); },
        +[](const Model& m) { return open_section(m); }, revisions_section, criteria_section,
        steps_section, results_section, +[](const Model& m) { return findings_section(m); },
        environment_section, figures_section, samples_section, settings_section, artifacts_section,
        self_test_section, reproduce_section})
    out += section(model);
  return out + "---\nWritten by nsa-validate from results.json alone.\n";
}

}  // namespace reports
