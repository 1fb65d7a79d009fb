#include "reports/render.h"

#include <stdexcept>

namespace reports {
namespace {

constexpr Renderer kRenderers[] = {
    {"md", "report.md", render_report_md},
    {"md", "summary.md", render_summary_md},
    {"md", "comment.md", render_comment_md},
    {"junit", "junit.xml", render_junit_xml},
};

}  // namespace

std::span<const Renderer> renderers() { return kRenderers; }

std::string render(std::string_view file, const harness::Results& results) {
  std::string known;
  for (const Renderer& renderer : kRenderers) {
    if (renderer.file == file) return renderer.render(Model(results));
    known += (known.empty() ? "" : ", ") + std::string(renderer.file);
  }
  throw std::invalid_argument("no renderer of '" + std::string(file) + "'; known: " + known);
}

}  // namespace reports
