#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "suites/faults/candidate.h"

namespace suites {

/// A historical failure (docs/faults.md) that can be injected around a candidate.
struct Fault {
  std::string_view id;    ///< "P03", or "P03/blocks" for a further form of it
  std::string_view what;  ///< what is injected
  std::string_view code;  ///< failure code that must be reported
  void (*inject)(Candidate& candidate);
};

/// Every fault of this folder, in order of id.
const std::vector<Fault>& fault_table();

/// `candidate` with the fault injected. Throws c10::Error naming the id, the nearest one and all
/// ids for an unknown one.
Candidate with_fault(Candidate candidate, std::string_view id);

}  // namespace suites
