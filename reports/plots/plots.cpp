#include <algorithm>
#include <set>

#include "reports/escape.h"
#include "reports/plots/plot.h"

namespace reports {
namespace {

constexpr size_t kMostPlots = 40;

/// File names stay unique whatever their ids were.
void make_names_unique(std::vector<Plot>& all) {
  std::set<std::string> taken;
  for (Plot& plot : all) {
    const std::string wish = plot.name;
    for (int n = 2; !taken.insert(plot.name).second; ++n)
      plot.name = wish + "-" + std::to_string(n);
  }
}

std::vector<Plot> every_plot(const Model& model) {
  std::vector<Plot> all;
  for (const auto part :
       {agreement_plots, comparison_plots, range_plots, series_plots, heat_map_plots})
    std::ranges::move(part(model), std::back_inserter(all));
  make_names_unique(all);
  return all;
}

}  // namespace

std::vector<Plot> plots(const Model& model) {
  std::vector<Plot> all = every_plot(model);
  if (all.size() > kMostPlots) all.resize(kMostPlots);
  return all;
}

std::string plot_markdown(const Plot& plot) {
  return "**" + plot.title + "**\n\n![" + escape(plot.alt) + "](plots/" + plot.name +
         ".svg)\n\n<details><summary>Table of this plot</summary>\n\n" + plot.table +
         "</details>\n\n";
}

}  // namespace reports
