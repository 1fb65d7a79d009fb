#include "harness/cli/rendering/rendering.h"

#include <algorithm>

#include "harness/cli/rendering/gnuplot.h"
#include "reports/html/page.h"
#include "reports/plots/plot.h"
#include "reports/render.h"

namespace harness::cli {

std::map<std::string, std::string> render_reports(const Results& results,
                                                  const std::vector<std::string>& formats) {
  std::map<std::string, std::string> files;
  for (const reports::Renderer& renderer : reports::renderers())
    if (formats.empty() || std::ranges::find(formats, renderer.format) != formats.end())
      files[std::string(renderer.file)] = reports::render(renderer.file, results);
  return files;
}

std::map<std::string, std::string> draw_reports(const Results& results,
                                                const std::vector<std::string>& formats,
                                                const std::string& gnuplot) {
  if (!formats.empty() && std::ranges::find(formats, "html") == formats.end()) return {};
  const reports::Model model(results);
  std::map<std::string, std::string> files;
  const reports::html::Drawings drawings = draw(reports::plots(model), gnuplot);
  for (const auto& [path, svg] : drawings) files[path] = svg;
  files["report.html"] = reports::render_report_html(model, drawings);
  return files;
}

}  // namespace harness::cli
