#pragma once
#include <utility>
#include <vector>

#include "harness/stats/estimators/evidence_view.h"

namespace harness {

/// What phase "p" left: all planned processes, each with its evidence.
inline EvidenceView view_of(std::vector<GroupEvidence> groups) {
  EvidenceView view;
  view.phase = "p";
  view.groups_planned = static_cast<int64_t>(groups.size());
  view.groups = std::move(groups);
  return view;
}

}  // namespace harness
