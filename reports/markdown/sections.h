#pragma once
#include <string>

#include "reports/model.h"

/// Sections of the Markdown reports, in the order of the report: each returns its heading and body,
/// ending with a blank line. A section without content is the empty string, or one sentence where
/// its absence would mislead.
namespace reports {

// first_screen.cpp
std::string notices(const Model& model);       ///< what a reader must know before the verdict
std::string title_line(const Model& model);    ///< "✅ GO: selection v2 on two GPUs"
std::string first_screen(const Model& model);  ///< notices, title, answer, what to do, the facts
std::string do_now(const Model& model);        ///< one sentence
std::string machine_text(const nlohmann::json& environment);  ///< GPUs, driver, CPU; not escaped
std::string commit_of(const nlohmann::json& environment);     ///< of the code that ran, or empty
double run_seconds(const Model& model);                       ///< all steps together

// answers_section.cpp
std::string answers_section(const Model& model, size_t max_rows = SIZE_MAX);
std::string recommended_section(const Model& model);

// next_steps.cpp
std::string next_steps_section(const Model& model, size_t max_rows = SIZE_MAX);

// open_section.cpp
std::string open_section(const Model& model, size_t max_rows = SIZE_MAX);
std::string findings_section(const Model& model, size_t max_rows = SIZE_MAX);
std::string revisions_section(const Model& model);  ///< empty for a first revision

// criteria_section.cpp
std::string criteria_section(const Model& model);

// steps_section.cpp
std::string steps_section(const Model& model);
std::string results_section(const Model& model);  ///< every step: tables, comparisons, plots

// tables.cpp
std::string table_markdown(const nlohmann::json& table);  ///< title, rows and id of one table
/// Each of the tables; those of the same title, columns and rows once, with the ids of the others.
std::vector<std::string> tables_markdown(const std::vector<const nlohmann::json*>& tables);
std::string comparisons_table(const std::vector<const harness::Metric*>& comparisons);
/// The text behind a JSON pointer; empty where there is none.
std::string text_at(const nlohmann::json& value, const std::string& pointer);
/// Why metrics have no figure: a line a reason, with the ids; empty for none.
std::string without_figure(const std::vector<const harness::Metric*>& metrics);
std::string history_table(const Model& model, const std::string& phase);

// record_sections.cpp
std::string environment_section(const Model& model);
std::string figures_section(const Model& model);
/// How the samples behind the comparisons were taken; empty where none of them records it.
std::string samples_section(const Model& model);
std::string settings_section(const Model& model);
std::string artifacts_section(const Model& model);
std::string self_test_section(const Model& model);
std::string reproduce_section(const Model& model);

std::string folded(const std::string& summary, const std::string& body);
/// A word of a shell command line, quoted where the shell would read more into it.
std::string shell_word(const std::string& word);

}  // namespace reports
