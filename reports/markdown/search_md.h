#pragma once
#include <string>
#include <vector>

namespace reports {

/// A search for the commit that turned a criterion, as plain text.
struct SearchPage {
  struct Trial {
    std::string commit, outcome, reason, run;
  };
  std::string criterion;
  std::string first_bad;  ///< hash and subject; empty: not found
  std::vector<std::string> one_of;
  std::string contradiction;
  double error_rate = 0;
  std::vector<Trial> trials;
};

/// As Markdown for a comment.
std::string render_search_md(const SearchPage& page);

}  // namespace reports
