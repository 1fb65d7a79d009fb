#pragma once
#include <string>

#include "harness/evidence/storage/run_folder.h"

namespace harness {

/// What stands behind an id of a report, as lines of text: for a metric (M-) the formula, the raw
/// samples and their files with sha256; for a criterion (C-) threshold, compared number and its
/// metric; for a phase (P-) what ran and its files; for an artifact (A-) its hash as recorded and
/// as it is; for a deviation (D-) and a finding (F-) their sentences and the fact; for a series
/// (S-) its lines, for a table (PHASE.NAME) its rows, and the files of both; and the command that
/// computes it again. Throws ConfigError naming the nearest id when there is no such one, and
/// EvidenceError when results.json cannot be read.
std::string explain(const RunFolder& run, const std::string& id);

}  // namespace harness
