#pragma once
#include <map>
#include <string>
#include <vector>

#include "harness/results/results.h"

namespace harness::cli {

/// The text reports of a run by file name; `formats` (md, junit) restricts them, empty means all.
std::map<std::string, std::string> render_reports(const Results& results,
                                                  const std::vector<std::string>& formats = {});

/// The web page and its plots, when `formats` is empty or holds html: report.html, and plots/ID.svg
/// as far as `gnuplot`, looked up in PATH, is there and can draw them.
std::map<std::string, std::string> draw_reports(const Results& results,
                                                const std::vector<std::string>& formats = {},
                                                const std::string& gnuplot = "gnuplot");

}  // namespace harness::cli
