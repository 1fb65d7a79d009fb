// Which kernels run when a backend is asked for: every arm is profiled alone, and kernel names are
// compared with the requested backend and with the one that the record names.
#include <ATen/ATen.h>

#include "nsa/diagnostics/nvtx_range.h"
#include "suites/conformance/case_inputs.h"
#include "suites/conformance/convert.h"
#include "suites/instrument/event_timer.h"
#include "suites/phases/attention_case.h"
#include "suites/phases/attention_under_test.h"
#include "suites/phases/profiles/path_rules.h"
#include "suites/phases/profiles/profile_session.h"

namespace suites {
namespace {

namespace trace = harness::trace;

constexpr const char* kCallRange = "audit.call";

/// What is asked for.
struct AuditArm {
  const char* name;
  nsa::SelBackend sel;
  nsa::BranchBackend branches;  ///< compressed and window
};

constexpr AuditArm kArms[] = {
    {"fused", nsa::SelBackend::kFused, nsa::BranchBackend::kFused},
    {"gather", nsa::SelBackend::kGather, nsa::BranchBackend::kPlain},
    {"packed", nsa::SelBackend::kPacked, nsa::BranchBackend::kPlain},
    {"varlen", nsa::SelBackend::kVarlen, nsa::BranchBackend::kPlain},
    {"masked", nsa::SelBackend::kMasked, nsa::BranchBackend::kPlain},
};

const AuditArm& find_arm(const std::string& name) {
  std::string known;
  for (const AuditArm& arm : kArms) {
    if (name == arm.name) return arm;
    known += (known.empty() ? "" : ", ") + std::string(arm.name);
  }
  throw ConfigError("args.arms must be some of " + known + ", got '" + name + "'");
}

std::vector<AuditArm> arms_of(const Args& args) {
  std::vector<std::string> all;
  for (const AuditArm& arm : kArms) all.emplace_back(arm.name);
  std::vector<AuditArm> arms;
  for (const std::string& name : args.get_list("arms", all)) arms.push_back(find_arm(name));
  return arms;
}

nsa::NsaOptions audit_options(const AuditArm& arm) {
  nsa::NsaOptions options;
  options.sel = arm.sel;
  options.cmp = options.win = arm.branches;
  options.keep_scores = false;
  return options;
}

class Audit {
 public:
  explicit Audit(const PhaseCase& one)
      : one_(one),
        arms_(arms_of(one.args)),
        attention_(attention_under_test(one.args)),
        session_(one),
        config_(attention_sizes(one.args, 12, 2, 64)),
        calls_(one.args.get_int("calls", 3, 1)) {
    config_.tokens = one.args.get_int("S", 2048, 1);
    inputs_ = draw_inputs(config_, input_type(one), one.device, one.seed());
  }

  std::string run() {
    const at::NoGradGuard no_grad;
    nlohmann::json rows = nlohmann::json::array();
    int64_t dropped = 0, step = 0;
    for (const AuditArm& arm : arms_) {
      const trace::Trace seen = audit(arm, rows);
      dropped += seen.dropped;
      one_.emitter.beat({.case_id = one_.id,
                         .step = ++step,
                         .of = static_cast<int64_t>(arms_.size()),
                         .at = arm.name});
    }
    one_.emitter.table({.case_id = one_.id,
                        .id = "paths",
                        .title = "Kernels that ran for each backend",
                        .columns = {"asked for", "stage", "requested", "ran", "kernels"},
                        .rows = rows});
    refuse_losses(one_, dropped);
    return "";
  }

 private:
  trace::Trace audit(const AuditArm& arm, nlohmann::json& rows) {
    const nsa::NsaInputs in = to_nsa(inputs_);
    const nsa::NsaConfig config = to_nsa(config_);
    const nsa::NsaOptions options = audit_options(arm);
    nsa::NsaOutputs out = attention_(in, config, options);  // warm-up
    session_.record([&] {
      for (int64_t i = 0; i < calls_; ++i) {
        const nsa::NvtxRange range(kCallRange);
        out = attention_(in, config, options);
        synchronize(one_.device);
      }
    });
    const trace::Trace seen = session_.save(arm.name, kCallRange, 1);
    prove_paths(one_, arm.name, seen, trace::attribute(seen, kCallRange), out.ran, rows);
    return seen;
  }

  const PhaseCase& one_;
  const std::vector<AuditArm> arms_;
  const AttentionFunction attention_;
  ProfileSession session_;
  CaseConfig config_;
  const int64_t calls_;
  DenseInputs inputs_;
};

}  // namespace

std::string run_path_audit(const PhaseCase& one) { return Audit(one).run(); }

}  // namespace suites
