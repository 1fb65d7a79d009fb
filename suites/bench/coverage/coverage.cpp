#include "suites/bench/coverage/coverage.h"

#include "suites/bench/coverage/kernel_coverage.h"
#include "suites/bench/coverage/recorded_times.h"

namespace suites {

std::string coverage_text(const std::string& samples, bool markdown) {
  const std::string title = markdown ? "## " : "";
  return title + "What runs where\n" + (markdown ? "" : "\n") + kernel_coverage(markdown) + "\n" +
         title + "How fast: forward / backward, ms\n" + (markdown ? "" : "\n") +
         recorded_times(samples, markdown);
}

}  // namespace suites
