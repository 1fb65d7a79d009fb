#include <algorithm>

#include "reports/markdown/sections.h"
#include "reports/render.h"

/// A report of bounded size. When it is too long, it gives way in a fixed order, least needed for
/// the decision first, and says what it left out.
namespace reports {
namespace {

constexpr size_t kBudget =
    60'000;  // bytes; step summaries and comments are refused above their limits

struct Limits {
  size_t comparisons = SIZE_MAX;
  size_t passed = SIZE_MAX;
  size_t completed = SIZE_MAX;
  size_t findings = SIZE_MAX;
  size_t deviations = SIZE_MAX;
  size_t open = SIZE_MAX;
  bool history = true;
  bool recommended = true;
};

std::string compose(const Model& model, const Limits& limits) {
  std::string out = headline(model);
  out += criteria_section(model, limits.open, limits.passed);
  out += steps_section(model, limits.completed);
  out += findings_section(model, limits.findings);
  out += comparisons_section(model, limits.comparisons);
  out += limits.history ? history_section(model)
                        : "Not shown here: historical figures; report.md has them.\n\n";
  out += deviations_section(model, limits.deviations);
  out += limits.recommended ? recommended_section(model)
                            : "Not shown here: recommended settings; report.md has them.\n\n";
  return out + "Figures, environment, settings, artifacts and commands: report.md.\n";
}

/// The order in which the summary gives way.
using Reduction = void (*)(Limits&);
constexpr Reduction kReductions[] = {
    [](Limits& l) { l.history = false; },
    [](Limits& l) { l.comparisons = 20; },
    [](Limits& l) { l.recommended = false; },
    [](Limits& l) { l.passed = 20; },
    [](Limits& l) { l.passed = 0; },
    [](Limits& l) { l.completed = 0; },
    [](Limits& l) { l.comparisons = 0; },
    [](Limits& l) { l.findings = 20; },
    [](Limits& l) { l.deviations = 20; },
    [](Limits& l) { l.open = 40; },
    [](Limits& l) {
      l.open = 10;
      l.findings = 5;
      l.deviations = 5;
    },
};

/// Last resort: whole lines from the start.
std::string cut(const std::string& text) {
  const std::string note = "\nThe rest did not fit; report.md has it.\n";
  const size_t end = text.rfind('\n', kBudget - note.size() - 1);
  return (end == std::string::npos ? "" : text.substr(0, end + 1)) + note;
}

}  // namespace

std::string render_summary_md(const Model& complete) {
  Model model = complete;
  model.links_files = false;
  Limits limits;
  std::string text = compose(model, limits);
  for (const Reduction reduce : kReductions) {
    if (text.size() < kBudget) return text;
    reduce(limits);
    text = compose(model, limits);
  }
  return text.size() < kBudget ? text : cut(text);
}

}  // namespace reports
