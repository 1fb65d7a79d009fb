#include "suites/instrument/cupti/call_recorder.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "harness/trace/trace.h"
#include "suites/instrument/cupti/activity_collector.h"

namespace suites {
namespace {

constexpr size_t kReadyThreads = 4;
constexpr int64_t kSameClockNs = 1'000'000;

uint64_t real_time() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

/// Callbacks may come until the process ends: the log is never destroyed.
CallLog& log() {
  static auto* const calls = new CallLog(real_time);
  return *calls;
}

GraphNodeLog& node_log() {
  static auto* const nodes = new GraphNodeLog(real_time);
  return *nodes;
}

constexpr auto kNodeCallbacks = std::to_array<CUpti_CallbackId>(
    {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED});

void CUPTIAPI on_callback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                          const void* data) {
  if (domain == CUPTI_CB_DOMAIN_RESOURCE &&
      std::ranges::find(kNodeCallbacks, id) != kNodeCallbacks.end()) {
    const auto* const resource = static_cast<const CUpti_ResourceData*>(data);
    return node_log().on_node(id,
                              *static_cast<const CUpti_GraphData*>(resource->resourceDescriptor));
  }
  // CUPTI reports its own state by the same callback, with other data.
  if (domain != CUPTI_CB_DOMAIN_RUNTIME_API && domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
  log().on_call(domain, id, *static_cast<const CUpti_CallbackData*>(data));
}

/// Times of calls and of device work must be of one clock.
void require_real_time(const CuptiLibrary& cupti) {
  uint64_t theirs = 0;
  cupti.must(cupti.get_timestamp(&theirs), "the clock of CUPTI");
  const int64_t apart = static_cast<int64_t>(real_time()) - static_cast<int64_t>(theirs);
  if (std::abs(apart) > kSameClockNs)
    throw CollectorUnavailable("CUPTI_UNAVAILABLE",
                               "the clock of CUPTI must be the real-time clock, got one " +
                                   std::to_string(apart) + " ns behind it");
}

}  // namespace

std::vector<CallRecorder::Call> CallRecorder::find_calls() const {
  static constexpr auto kDomains = std::to_array<std::pair<CUpti_CallbackDomain, int>>(
      {{CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_SIZE},
       {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE}});
  std::vector<Call> calls;
  for (const auto& [domain, end] : kDomains)
    for (CUpti_CallbackId id = 1; id < static_cast<CUpti_CallbackId>(end); ++id) {
      const char* name = nullptr;
      if (cupti_.callback_name(domain, id, &name) == CUPTI_SUCCESS && name != nullptr &&
          harness::trace::call_kind(name) != harness::trace::CallKind::kOther)
        calls.push_back({domain, id});
    }
  return calls;
}

void CallRecorder::attach() {
  cupti_.must(cupti_.subscribe(&subscriber_, on_callback, nullptr), "attaching CUPTI");
  require_real_time(cupti_);
  calls_ = find_calls();
  log().prepare(kReadyThreads);
  node_log().use(cupti_.graph_node_id);
}

/// A call that has no callback is left out; readers of the trace count work without a call.
void CallRecorder::start() {
  std::erase_if(calls_, [&](const Call& call) {
    return cupti_.enable_callback(1, subscriber_, call.domain, call.id) != CUPTI_SUCCESS;
  });
  if (calls_.empty())
    throw CollectorUnavailable("CUPTI_UNAVAILABLE", "CUPTI has no callback for any call");
}

void CallRecorder::stop() {
  for (const Call& call : calls_)
    cupti_.must(cupti_.enable_callback(0, subscriber_, call.domain, call.id),
                "switching a callback off");
}

void CallRecorder::start_nodes() {
  for (const CUpti_CallbackId id : kNodeCallbacks)
    cupti_.must(cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id),
                "callbacks of graph nodes");
}

std::vector<LoggedNode> CallRecorder::stop_nodes() {
  for (const CUpti_CallbackId id : kNodeCallbacks)
    cupti_.must(cupti_.enable_callback(0, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id),
                "switching callbacks of graph nodes off");
  return node_log().take();
}

std::vector<LoggedCall> CallRecorder::take() { return log().take(); }
void CallRecorder::clear() { log().clear(); }
int64_t CallRecorder::lost() const { return log().lost() + node_log().lost(); }

}  // namespace suites
