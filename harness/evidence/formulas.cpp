#include "harness/evidence/formulas.h"

#include <array>

namespace harness {
namespace {

struct Row {
  const char *estimator, *formula;
};

// In words, what harness/stats computes; a test holds this table to the names of
// harness/stats/estimators/estimators.h.
constexpr auto kFormulas = std::to_array<Row>({
    {"value", "the value of the only metric line {source}"},
    {"min", "smallest of the metric lines {source} over all processes and cases"},
    {"max", "largest of the metric lines {source} over all processes and cases"},
    {"mean",
     "mean of the metric lines {source} over all processes and cases; interval: Student's t, the "
     "lines being independent and about normal"},
    {"all", "1 when every metric line {source} is 1, else 0"},
    {"checks_run", "number of check lines whose id starts with {source}"},
    {"checks_failed", "number of check lines whose id starts with {source} and that are not ok"},
    {"median",
     "median of the samples of series {source}, with an order-statistics interval; unit of "
     "analysis: the process when there are several, else the sample"},
    {"rate",
     "mean rate of the steady part of the samples of series {source}, with a within-run interval "
     "and its guard band"},
    {"eta",
     "eta.steps_count x step.tokens_count / mean rate of the samples of series {source}; bounds: "
     "those of the rate, changed places"},
    {"paired_ratio",
     "exp of the Hodges-Lehmann estimate over processes of ln({baseline} / {candidate}), each the "
     "median over its rounds, or with fewer than five rounds that of the arms' medians; interval: "
     "exact signed-rank"},
    {"paired_overhead",
     "100 x (1 / speed-up - 1), the speed-up being exp of the Hodges-Lehmann estimate over "
     "processes of ln({baseline} / {candidate}); interval: exact signed-rank"},
});

void replace(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

}  // namespace

std::string formula_of(const MetricSpec& spec) {
  for (const Row& row : kFormulas) {
    if (spec.estimator != row.estimator) continue;
    std::string text = row.formula;
    const bool counts = spec.estimator.starts_with("c");
    replace(text, "{source}",
            "'" + (spec.source.empty() && !counts ? spec.name : spec.source) + "'");
    replace(text, "{baseline}", "'" + (spec.arms.empty() ? std::string() : spec.arms[0]) + "'");
    replace(text, "{candidate}", "'" + (spec.arms.size() < 2 ? std::string() : spec.arms[1]) + "'");
    return text;
  }
  return "";
}

}  // namespace harness
