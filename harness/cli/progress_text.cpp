#include "harness/cli/progress_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/plain_text.h"
#include "harness/results/number.h"

namespace harness::cli {

std::string bar(int64_t step, int64_t of, size_t width) {
  if (of <= 0) return "";
  const auto all = static_cast<int64_t>(width);
  const auto filled = static_cast<size_t>(std::clamp<int64_t>(step * all / of, 0, all));
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
}

std::string beat_text(const base::protocol::Beat& beat, double eta_s) {
  std::string text = fmt::format("step {}", beat.step);
  if (beat.of > 0) text += fmt::format("/{}", beat.of);
  if (!beat.at.empty() && beat.at != "step") text += " " + beat.at;
  if (beat.rate)
    text += fmt::format(", {} {}", format_number(*beat.rate), unit_text(beat.rate_unit));
  if (eta_s > 0) text += ", " + format_duration(eta_s) + " left";
  return base::plain_text(text);
}

std::string fit(const std::string& line, size_t columns) {
  if (columns == 0) return line;
  size_t shown = 0, last = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if ((line[i] & 0xC0) == 0x80) continue;
    if (++shown == columns) last = i;
    if (shown > columns) return line.substr(0, last) + "…";
  }
  return line;
}

}  // namespace harness::cli
