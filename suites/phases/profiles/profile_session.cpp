#include "suites/phases/profiles/profile_session.h"

#include <filesystem>

#include "harness/trace/chrome.h"
#include "harness/trace/trace_file.h"
#include "suites/phases/profiles/profile_lines.h"

namespace suites {

namespace trace = harness::trace;

ProfileSession::ProfileSession(const PhaseCase& one) : one_(one) {
  if (one.in.mode != "profile")
    throw ConfigError("mode of " + one.in.kind + " must be profile, got '" + one.in.mode + "'");
  if (!one.device.is_cuda())
    throw NotDecided("deferred", "CUPTI_UNAVAILABLE",
                     "a profile needs a CUDA device, got " + one.device.str());
  try {
    collector_ = std::make_unique<ActivityCollector>();
  } catch (const CollectorUnavailable& why) {
    throw NotDecided("deferred", why.code(), why.what());
  }
}

void ProfileSession::record(const std::function<void()>& work,
                            const std::function<void()>& settle) {
  collector_->clear();
  collector_->start();
  if (settle) {
    settle();
    collector_->begin_here();  // what is handed over to be thrown away makes the next step longer
  }
  work();
  collector_->stop();
}

trace::Trace ProfileSession::save(const std::string& step_range, int64_t chrome_steps) {
  const std::string file = one_.id + ".trace.jsonl", chrome = one_.id + ".chrome.json";
  const std::filesystem::path folder = one_.in.out;
  trace::write_trace_file(folder / file, collector_->take());
  one_.emitter.artifact(file, "application/jsonl");
  trace::Trace kept = trace::read_trace_file(folder / file);
  if (chrome_steps > 0) {
    trace::write_chrome_file(folder / chrome, kept, step_range, chrome_steps);
    one_.emitter.artifact(chrome, "application/json");
  }
  return kept;
}

void refuse_losses(const PhaseCase& one, int64_t dropped) {
  emit_figure(one, "profile.dropped_count", static_cast<double>(dropped), "count");
  if (dropped > 0)
    throw NotDecided("partial", "PROFILE_DROPPED", std::to_string(dropped) + " records were lost");
}

}  // namespace suites
