#pragma once
#include <span>
#include <string>
#include <string_view>

#include "reports/model.h"

/// Reports are a pure function of results.json: no clock, no locale, no file is read. Rendering
/// twice gives the same bytes; `verify` relies on it.
namespace reports {

struct Renderer {
  std::string_view format;  ///< name of --format: md, junit
  std::string_view file;    ///< name in the run folder
  std::string (*render)(const Model& model);
};

/// Every renderer. The next one is one file with one function, and one line in render.cpp.
std::span<const Renderer> renderers();

/// The text of one report by its file name, e.g. "report.md". Throws std::invalid_argument naming
/// the known ones.
std::string render(std::string_view file, const harness::Results& results);

std::string render_report_md(const Model& model);      ///< everything
std::string render_summary_md(const Model& complete);  ///< < 60 kB, for a step summary
std::string render_comment_md(
    const Model& complete);  ///< < 20 lines and details, for a pull request
std::string render_junit_xml(const Model& model);

}  // namespace reports
