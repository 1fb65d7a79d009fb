#pragma once
#include <string>
#include <vector>

#include "reports/html/document.h"
#include "reports/plots/plot.h"

namespace harness::cli {

/// Draws plots with one call of `program` (looked up in PATH) and cleans what it drew. Plots that
/// could not be drawn are missing; without the program all are. Works in a temporary folder.
reports::html::Drawings draw(const std::vector<reports::Plot>& plots, const std::string& program);

}  // namespace harness::cli
