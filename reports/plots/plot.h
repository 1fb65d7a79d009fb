#pragma once
#include <string>
#include <vector>

#include "reports/model.h"

/// Plots as text: a gnuplot script with its data, and a table of the same figures. A script holds
/// only words of this folder and numbers; every other text is in the data file, which gnuplot does
/// not execute.
namespace reports {

struct Plot {
  std::string name;    ///< of the file plots/NAME.svg: letters, digits, - _ .
  std::string title;   ///< Markdown
  std::string alt;     ///< what is to be seen, plain text
  std::string data;    ///< DATA of the script: columns separated by tabs, blocks by two empty lines
  std::string script;  ///< gnuplot commands up to and with `plot`; reads the file named by DATA
  int height = 420;    ///< in units of a width of 840
  std::string table;   ///< the same figures, Markdown
  std::string phase = "";  ///< step whose results it shows; empty: of the whole run
};

/// All plots of a report in their order: agreement with the oracle, A/B comparisons, time per
/// range, figures over steps and sizes, heat maps.
std::vector<Plot> plots(const Model& model);

std::vector<Plot> agreement_plots(const Model& model);   ///< agreement.cpp
std::vector<Plot> comparison_plots(const Model& model);  ///< comparisons.cpp
std::vector<Plot> heat_map_plots(const Model& model);    ///< heat_map.cpp
std::vector<Plot> range_plots(const Model& model);       ///< ranges.cpp
std::vector<Plot> series_plots(const Model& model);      ///< series.cpp

/// A plot with its title, and its table folded.
std::string plot_markdown(const Plot& plot);

}  // namespace reports
