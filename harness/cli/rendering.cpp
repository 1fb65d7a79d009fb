#include "harness/cli/rendering.h"

#include <algorithm>

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

}  // namespace harness::cli
