#pragma once
#include <map>
#include <string>
#include <vector>

#include "harness/runbook/runbook.h"

namespace harness {

/// Words by the name of their list (member `lists` of a kind).
using WordLists = std::map<std::string, std::vector<std::string>>;

/// The list that a text refers to by {NAME}; empty for none.
std::string list_named_in(const std::string& text);

/// A metric whose name has {NAME} stands for one metric a word of list NAME, which replaces {NAME}
/// in each of its texts: "cap{mib}.step_ms" for "cap1.step_ms", "cap5.step_ms". Without {NAME}, the
/// metric itself. The list must exist.
std::vector<MetricSpec> expand(const MetricSpec& metric, const WordLists& lists);

/// The same for a row of a table; the list is that of its first cell with {NAME}.
std::vector<std::vector<std::string>> expand(const std::vector<std::string>& row,
                                             const WordLists& lists);

/// The kind with every family of metrics, rows and settings written out, and without lists.
KindSpec expand(KindSpec kind);

}  // namespace harness
