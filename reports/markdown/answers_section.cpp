// The questions with their answers, and the settings that won.
#include "reports/answers.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/results/plain_figure.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/markdown/table.h"

namespace reports {

using harness::CriterionResult;
using harness::CriterionVerdict;
using harness::Metric;

namespace {

/// A FAIL withholds what else was to be measured: speeds of outputs that are wrong.
std::string others_open(const Answered& one) {
  const auto open = std::ranges::count_if(one.criteria, [&](const CriterionResult* c) {
    return c != one.decisive && c->verdict == CriterionVerdict::kNotEvaluated;
  });
  return open == 0 ? "" : "; " + std::to_string(open) + " more not evaluated";
}

/// The runbook's sentence where the answer is yes or no; else what keeps the answer open.
std::string says_text(const Model& model, const Answered& one) {
  if (one.decisive == nullptr) return "no criterion belongs to it";
  const CriterionResult& c = *one.decisive;
  if (c.verdict != CriterionVerdict::kPass)
    return code(c.id) + (c.text.empty() ? "" : ", " + escape(c.text, 160)) + ": " +
           escape(c.reason, 300) + others_open(one);
  if (!one.says.empty()) return sentence(model, one.says);
  if (c.unit == "bool" || c.unit == "count" || c.op == "==")
    return std::to_string(one.criteria.size()) +
           (one.criteria.size() == 1 ? " criterion passes" : " criteria pass");
  return escape(c.text, 200) + ": " + measured_text(model, c) + ", required " + threshold_text(c);
}

std::string arm_of(const Metric& m, const char* which) {
  const nlohmann::json::json_pointer at(std::string("/") + which + "/arm");
  return m.details.contains(at) && m.details.at(at).is_string()
             ? code(m.details.at(at).get<std::string>())
             : which;
}

/// What a user sets to have the arm; empty: its kind names nothing.
std::string setting_of(const Metric& m, const char* which) {
  const nlohmann::json::json_pointer at(std::string("/") + which + "/setting");
  return m.details.contains(at) && m.details.at(at).is_string()
             ? m.details.at(at).get<std::string>()
             : "";
}

/// An arm without a setting, where the other one has one, was measured for comparison: nobody can
/// choose it.
bool is_choice(const Metric& m) {
  return setting_of(m, "baseline").empty() == setting_of(m, "candidate").empty();
}

/// Verdicts rest on hot figures; a cold one recommends nothing.
bool is_cold(const Metric& m) {
  return m.details.contains("cache") && m.details["cache"] == "cold";
}

bool is_won(const Metric& m) {
  const bool decided = m.verdict == "FASTER" || m.verdict == "SLOWER";
  return decided && m.value && m.withheld.empty() && is_choice(m) && !is_cold(m);
}

/// Phase and baseline of a comparison, such as "linear/alone".
std::string yardstick_of(const Metric& m) { return m.phase + "/" + arm_of(m, "baseline"); }

/// Baselines that a criterion allows the other arm to be slower than: what others cost is measured
/// by them, and nobody chooses between the two (one rank alone, the code before a change).
std::set<std::string> yardsticks(const Model& model) {
  std::set<std::string> found;
  for (const CriterionResult* c : model.criteria) {
    const bool allows_loss =
        c->unit == "ratio" && c->op.starts_with('>') && c->threshold && *c->threshold <= 1;
    for (const Metric* m : model.comparisons)
      if (allows_loss && m->name == c->metric) found.insert(yardstick_of(*m));
  }
  return found;
}

const char* winner(const Metric& m) { return m.verdict == "FASTER" ? "candidate" : "baseline"; }
const char* loser(const Metric& m) { return m.verdict == "FASTER" ? "baseline" : "candidate"; }
std::string winner_of(const Metric& m) { return arm_of(m, winner(m)); }
std::string loser_of(const Metric& m) { return arm_of(m, loser(m)); }

/// The setting, behind it the arm as figures name it.
std::string use_text(const Metric& m, const char* which) {
  const std::string setting = setting_of(m, which);
  return setting.empty() ? arm_of(m, which) : code(setting) + " (" + arm_of(m, which) + ")";
}

/// Whether the winner lost to a third arm of its step: nobody should use it.
bool is_beaten(const Model& model, const Metric& m) {
  return std::ranges::any_of(model.comparisons, [&](const Metric* other) {
    return is_won(*other) && other->phase == m.phase && loser_of(*other) == winner_of(m) &&
           winner_of(*other) != loser_of(m);
  });
}

/// How many times as fast as the loser the winner is.
struct Advantage {
  std::optional<double> value, lo, hi;
};
Advantage advantage(const Metric& m) {
  if (m.verdict == "FASTER") return {m.value, m.lo, m.hi};
  const auto inverse = [](const std::optional<double>& x) { return x ? std::optional(1 / *x) : x; };
  return {inverse(m.value), inverse(m.hi), inverse(m.lo)};
}

/// An arm that won over another one in `cases` cases of a step, by no less than `least`.
struct Win {
  const Metric* least;
  int64_t cases = 1;
};
/// All cases of the two arms in that step, decided or not.
int64_t cases_of(const Model& model, const Metric& m) {
  const std::set<std::string> arms{winner_of(m), loser_of(m)};
  return std::ranges::count_if(model.comparisons, [&](const Metric* other) {
    return other->phase == m.phase && !is_cold(*other) &&
           std::set{winner_of(*other), loser_of(*other)} == arms;
  });
}
/// Where the arm won in some cases only, nobody should take it to win everywhere.
std::string cases_text(const Model& model, const Win& one) {
  const int64_t all = cases_of(model, *one.least);
  if (one.cases < all)
    return " in " + std::to_string(one.cases) + " of " + std::to_string(all) + " cases";
  return all > 1 ? ", the least of " + std::to_string(all) + " cases" : "";
}
std::vector<Win> wins(const Model& model) {
  std::vector<Win> all;
  const std::set<std::string> measures = yardsticks(model);
  for (const Metric* m : model.comparisons) {
    if (!is_won(*m) || measures.contains(yardstick_of(*m)) || is_beaten(model, *m)) continue;
    const auto same = std::ranges::find_if(all, [&](const Win& one) {
      return one.least->phase == m->phase && winner_of(*one.least) == winner_of(*m) &&
             loser_of(*one.least) == loser_of(*m);
    });
    if (same == all.end()) {
      all.push_back({m});
      continue;
    }
    ++same->cases;
    if (advantage(*m).value < advantage(*same->least).value) same->least = m;
  }
  return all;
}

}  // namespace

std::string answers_section(const Model& model, size_t max_rows) {
  Table table({"question", "answer", "reason", "id"});
  std::vector<Answered> all = answered(model);
  if (all.size() > max_rows)  // what is answered with yes is left out first
    std::ranges::stable_sort(all, {}, &Answered::answer);
  for (const Answered& one : all)
    table.add({escape(one.question), status_text(one.answer), says_text(model, one), code(one.id)});
  if (table.empty())
    return "## Answers\n\n**The runbook has no criteria: nothing was decided.**\n\n";
  return "## Answers\n\n" + table.markdown(max_rows);
}

std::string recommended_section(const Model& model) {
  Table table({"use", "instead of", "because it is", "measured as"});
  for (const Win& one : wins(model)) {
    const Metric& m = *one.least;
    const auto [value, lo, hi] = advantage(m);
    table.add({use_text(m, winner(m)), use_text(m, loser(m)),
               escape(harness::plain_figure(value.value_or(NAN), "ratio", true, lo, hi)) +
                   " as fast" + cases_text(model, one),
               code(m.id)});
  }
  const std::string out = "## Recommended settings\n\n";
  if (table.empty()) return out + "None: no arm won an A/B comparison in this run.\n\n";
  return out + table.markdown() +
         "Only arms that won an A/B comparison of this run stand here.\n\n";
}

}  // namespace reports
