#include "reports/plots/waterfall.h"

#include <algorithm>

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/markdown/table.h"
#include "reports/plots/data.h"

namespace reports {
namespace {

/// One block of a data file for each look of a bar, so that the script needs no condition.
struct Bars {
  std::string ends, longer, shorter;
  double least, largest;

  void add(std::string& block, size_t x, double from, double to, const std::string& text) {
    block += row({number(static_cast<double>(x)), number(from), number(to), label(text, 30)});
    least = std::min({least, from, to});
    largest = std::max({largest, from, to});
  }
};

/// A block must not be empty: a point that is not drawn.
std::string block_of(const std::string& rows) {
  return (rows.empty() ? row({"0", "NaN", "NaN", "–"}) : rows) + "\n\n";
}

std::string boxes(int block, const char* colour, const char* title) {
  return "DATA index " + std::to_string(block) +
         " using 1:2:2:3:3:xticlabels(4) with candlesticks fs solid 0.8 noborder lc rgb \"" +
         colour + "\" title \"" + title + "\"";
}

}  // namespace

Plot waterfall_plot(const Waterfall& w) {
  Plot plot;
  plot.name = file_name(w.name);
  plot.title = w.title;
  plot.alt = "Waterfall: from " + harness::format_number(w.from_ms) + " ms by " +
             std::to_string(w.changes.size()) + " changes to " + harness::format_number(w.to_ms) +
             " ms";
  plot.height = 520;
  Table table({"change", "ms>", "so far, ms>"});
  Bars bars{.ends = {}, .longer = {}, .shorter = {}, .least = w.from_ms, .largest = w.from_ms};
  double at = w.from_ms;
  size_t x = 1;
  table.add({"A", "", harness::format_number(at)});
  for (const auto& [text, change] : w.changes) {
    bars.add(change > 0 ? bars.longer : bars.shorter, ++x, at, at + change, text);
    at += change;
    table.add({escape(text), harness::format_number(change), harness::format_number(at)});
  }
  bars.add(bars.ends, x + 1, w.to_ms, w.to_ms, "B");
  const double air = std::max(bars.largest - bars.least, 1e-6) * 0.15;
  const double floor = std::max(0.0, bars.least - air);
  bars.ends.clear();
  bars.add(bars.ends, 1, floor, w.from_ms, "A");
  bars.add(bars.ends, x + 1, floor, w.to_ms, "B");
  table.add({"B", "", harness::format_number(w.to_ms)});
  plot.data = block_of(bars.ends) + block_of(bars.longer) + block_of(bars.shorter);
  plot.script = "set boxwidth 0.7\nset xtics rotate by -30\nset xrange [0.3:" +
                number(static_cast<double>(x) + 1.7) + "]\nset yrange [" + number(floor) + ":" +
                number(bars.largest + air) +
                "]\nset ylabel \"a step, ms\"\nset key top left\nplot " +
                boxes(0, "#2f7ed8", "a step") + ", " + boxes(1, "#d0393b", "longer") + ", " +
                boxes(2, "#2e8b57", "shorter") + "\n";
  plot.table = table.markdown();
  return plot;
}

}  // namespace reports
