#pragma once
#include <string>

#include "reports/model.h"

/// Sections of the Markdown reports: each returns its heading and body, ending with a blank line. A
/// section without content says so in a sentence where its absence would mislead, and is the empty
/// string where it would not.
namespace reports {

// sections_verdict.cpp
std::string runbook_line(const Model& model);    ///< a line when the runbook is no shipped one
std::string headline(const Model& model);        ///< gate note, title, verdict, weakest, scope
std::string headline_facts(const Model& model);  ///< the list under the title alone
std::string steps_section(const Model& model, size_t max_completed = SIZE_MAX);
std::string criteria_section(const Model& model, size_t max_open = SIZE_MAX,
                             size_t max_passed = SIZE_MAX);

// sections_figures.cpp
std::string table_markdown(const nlohmann::json& table);  ///< title, rows and id of one table
std::string comparisons_section(const Model& model, size_t max_rows = SIZE_MAX);
/// How the samples behind the comparisons were taken; empty where none of them says.
std::string samples_section(const Model& model);
std::string history_section(const Model& model);
std::string figures_section(const Model& model);
std::string hotspots_section(const Model& model);
std::string tables_section(const Model& model);
std::string revisions_section(const Model& model);  ///< empty for a first revision

// sections_record.cpp
std::string environment_section(const Model& model);
std::string findings_section(const Model& model, size_t max_rows = SIZE_MAX);
std::string recommended_section(const Model& model);
std::string deviations_section(const Model& model, size_t max_rows = SIZE_MAX);
std::string settings_section(const Model& model);
std::string artifacts_section(const Model& model);
std::string reproduce_section(const Model& model);
std::string self_test_section(const Model& model);

}  // namespace reports
