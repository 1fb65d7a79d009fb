#include "reports/markdown/search_md.h"

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/markdown/table.h"

namespace reports {
namespace {

std::string answer(const SearchPage& page) {
  if (!page.contradiction.empty())
    return "**Not decidable:** " + escape(page.contradiction) +
           ". Search between two commits between which it changes once.\n\n";
  if (!page.first_bad.empty())
    return "**" + escape(page.first_bad) + "** is the first commit at which " +
           code(page.criterion) + " FAILs.\n\n";
  std::string text =
      "**Not decidable:** the commits that are left could not be judged. One of:\n\n";
  for (const std::string& commit : page.one_of) text += "- " + escape(commit) + "\n";
  return text + "\n";
}

/// By the union bound over trials that rest on samples.
std::string certainty(const SearchPage& page) {
  if (page.error_rate == 0) return "Every trial is exact: no sample stands behind a decision.\n";
  return "How sure: each measured trial is wrong in at most 1 % of cases, so at most " +
         harness::format_number(100 * page.error_rate, 2) +
         " % of such searches name a wrong commit.\n";
}

}  // namespace

std::string render_search_md(const SearchPage& page) {
  Table table({"commit", "trial", "reason", "run"});
  for (const SearchPage::Trial& trial : page.trials)
    table.add({escape(trial.commit), escape(trial.outcome), escape(trial.reason, 200),
               trial.run.empty() ? "–" : code(trial.run)});
  return "# Which commit turned " + code(page.criterion) + "?\n\n" + answer(page) +
         table.markdown() + certainty(page);
}

}  // namespace reports
