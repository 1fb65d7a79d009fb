#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/evidence/derive.h"

namespace harness {

/// Renders the text reports that are derived again by `verify`: file name -> bytes (report.md,
/// summary.md, comment.md, junit.xml). Passed in, because this room does not know reports/.
using ReportRenderer = std::function<std::map<std::string, std::string>(const Results&)>;

struct Written {
  Results results;
  std::string head;                     ///< head of the ledger, to be printed
  std::vector<EvidenceError> problems;  ///< what made the verdict NO-GO (evidence)
};

/// Closes a run: derives results.json from the raw evidence, renders the text reports, and writes
/// the ledger over everything last. HTML and plots may be written afterwards. May be called again
/// (`--resume`, `report`): the same evidence gives the same bytes. Throws EvidenceError when
/// results cannot be derived at all, or a file cannot enter the ledger (a link, a name that is not
/// UTF-8), and Error when a file cannot be written.
Written write_bundle(const std::filesystem::path& run_dir, const ReportRenderer& render);

}  // namespace harness
