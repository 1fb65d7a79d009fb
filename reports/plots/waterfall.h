#pragma once
#include <string>
#include <utility>
#include <vector>

#include "reports/plots/plot.h"

namespace reports {

/// From one time to another by the changes between them.
struct Waterfall {
  std::string name;   ///< of the plot's file
  std::string title;  ///< Markdown
  double from_ms = 0, to_ms = 0;
  std::vector<std::pair<std::string, double>> changes;  ///< plain text and ms, as they are drawn
};

/// A bar for each end and one for each change, which begins where the one before ends.
Plot waterfall_plot(const Waterfall& w);

}  // namespace reports
