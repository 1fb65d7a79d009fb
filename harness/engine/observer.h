#pragma once
#include <string>

#include "base/protocol/messages.h"
#include "harness/engine/phase_record.h"
#include "harness/runbook/plan/plan.h"

namespace harness {

/// Progress of a run; cli/ draws bars or writes log lines from it. Called from the
/// thread that runs.
class Observer {
 public:
  virtual ~Observer() = default;
  /// `number` of `total` phases, from 1. Also called for phases that will not run.
  virtual void on_phase_start(const PlannedPhase&, size_t /*number*/, size_t /*total*/) {}
  virtual void on_group_start(const PlannedPhase&, const std::string& /*group*/, int /*attempt*/) {}
  /// eta_s: until the last step of the case; 0 when unknown.
  virtual void on_beat(const PlannedPhase&, const std::string& /*group*/,
                       const base::protocol::Beat&, double /*eta_s*/) {}
  virtual void on_phase_end(const PlannedPhase&, const PhaseRecord&) {}
  /// Something worth a line: evidence reused by --resume, leftovers killed, a retry.
  virtual void on_note(const std::string& /*text*/) {}
};

}  // namespace harness
