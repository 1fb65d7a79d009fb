#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/protocol/messages.h"
#include "harness/evidence/storage/run_files.h"
#include "harness/stats/estimators/evidence_view.h"

namespace harness {

/// One raw evidence file, read by the rules of base/protocol.
struct RawGroup {
  std::string id;        ///< g01; a rank: g01.r0
  std::string file;      ///< relative to the run folder
  std::string unusable;  ///< the first broken rule; empty when the lines count
  base::protocol::Hello hello;
  std::vector<base::protocol::Finding> findings;
  std::vector<base::protocol::Table> tables;
  std::vector<base::protocol::Beat> steps = {};          ///< heartbeats of completed steps
  std::vector<base::protocol::Beat> earlier_steps = {};  ///< of processes that it went on from
  int64_t last_step = 0;  ///< of its heartbeats, also of a process that was ended
};

/// What a phase left.
struct RawPhase {
  EvidenceView view;             ///< for harness/stats
  std::vector<RawGroup> groups;  ///< in the order of view.groups
  std::vector<CaseResult> cases;
  int64_t cases_planned = 0, cases_ok = 0;
  std::vector<EvidenceError> problems;  ///< files that contradict phase.json
};

/// Reads every GROUP.jsonl of a phase. A phase that phase.json calls COMPLETED must have one usable
/// file for each planned group: anything else is a problem, and the file's lines do not count.
RawPhase read_raw_phase(const RunFolder& run, const RunFiles& files, const PlannedPhase& planned,
                        const PhaseEnd& end);

}  // namespace harness
