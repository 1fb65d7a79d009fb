#include "suites/instrument/cupti/activity_collector.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "suites/instrument/cupti/activity_buffers.h"
#include "suites/instrument/cupti/call_recorder.h"
#include "suites/instrument/cupti/record_decoder.h"
#endif

namespace suites {
#ifdef NSA_WITH_CUDA
namespace {

/// 64 blocks of 8 MiB: about three million records. Every thread that calls CUDA fills its own.
constexpr size_t kMostBuffers = 64, kReadyBuffers = 16;

std::vector<CUpti_ActivityKind> kinds_of(RecordPart part) {
  switch (part) {
    case RecordPart::kKernels:
      return {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};
    case RecordPart::kCopies:
      return {CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
    case RecordPart::kRuntimeRecords:
      return {CUPTI_ACTIVITY_KIND_RUNTIME};
    case RecordPart::kDriverRecords:
      return {CUPTI_ACTIVITY_KIND_DRIVER};
    case RecordPart::kCalls:
      return {};
    case RecordPart::kWaits:
      return {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION};
    case RecordPart::kRanges:
      return {CUPTI_ACTIVITY_KIND_MARKER};
  }
  return {};
}

/// CUPTI's callbacks carry no pointer of the caller's: one collector a process. It is never
/// destroyed, because CUPTI's own thread may still write while the process ends.
ActivityBuffers& buffers() {
  static auto* const all = new ActivityBuffers(kMostBuffers);
  return *all;
}

void CUPTIAPI request_buffer(uint8_t** data, size_t* bytes, size_t* most_records) {
  *data = buffers().request();
  *bytes = *data == nullptr ? 0 : ActivityBuffers::kBytes;
  *most_records = 0;
}

void CUPTIAPI complete_buffer(CUcontext, uint32_t, uint8_t* data, size_t, size_t valid_bytes) {
  if (data != nullptr) buffers().complete(data, valid_bytes);
}

}  // namespace

struct ActivityCollector::Impl {
  CuptiLibrary cupti = open_cupti();
  CallRecorder calls{cupti};
  std::vector<CUpti_CallbackId> idle_runtime_calls, idle_driver_calls;
  std::vector<CUpti_ActivityKind> enabled;
  int64_t dropped = 0, lost_before = 0;
  uint64_t first_time = 0;  ///< of what is kept
  harness::trace::CapturedRanges captured;
  int64_t lost_of_captures = 0;  ///< records lost while captures were watched
  bool recording = false, logging = false;

  /// Calls that neither launch, copy, set nor wait: they are frequent and of no use here.
  std::vector<CUpti_CallbackId> idle_calls(CUpti_CallbackDomain domain, int end) const {
    std::vector<CUpti_CallbackId> idle;
    for (int id = 1; id < end; ++id) {
      const char* name = nullptr;
      if (cupti.callback_name(domain, static_cast<CUpti_CallbackId>(id), &name) != CUPTI_SUCCESS ||
          name == nullptr)
        continue;
      if (harness::trace::call_kind(name) == harness::trace::CallKind::kOther)
        idle.push_back(static_cast<CUpti_CallbackId>(id));
    }
    return idle;
  }

  void attach() {
    calls.attach();
    // The kernel's number of a thread, the same in calls and ranges.
    cupti.must(cupti.set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM),
               "thread ids of CUPTI");
    // Blocks are handed over zeroed; else CUPTI clears each on the thread that launches.
    uint8_t zeroed = 1;
    size_t bytes = sizeof zeroed;
    cupti.set_attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &zeroed);
    cupti.must(cupti.register_callbacks(request_buffer, complete_buffer), "buffers of CUPTI");
    idle_runtime_calls = idle_calls(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_SIZE);
    idle_driver_calls = idle_calls(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE);
  }

  void switch_on(const std::vector<RecordPart>& parts) {
    recording = true;
    for (const RecordPart part : parts) {
      for (const CUpti_ActivityKind kind : kinds_of(part)) {
        cupti.must(cupti.enable(kind), "switching an activity kind on");
        enabled.push_back(kind);
      }
      if (part == RecordPart::kRuntimeRecords)
        leave_out(idle_runtime_calls, cupti.enable_runtime_call);
      if (part == RecordPart::kDriverRecords)
        leave_out(idle_driver_calls, cupti.enable_driver_call);
      if (part == RecordPart::kCalls) {
        logging = true;
        calls.start();
      }
    }
  }

  void switch_off() {
    if (std::exchange(logging, false)) calls.stop();
    for (const CUpti_ActivityKind kind : std::exchange(enabled, {}))
      cupti.must(cupti.disable(kind), "switching an activity kind off");
    recording = false;
  }

  /// After the kinds, which switch all calls on: asked for one by one, an H200 with CUPTI 13.0
  /// recorded none. A call that cannot be left out is recorded, too.
  void leave_out(std::vector<CUpti_CallbackId>& idle,
                 decltype(&::cuptiActivityEnableRuntimeApi) enable) {
    std::erase_if(idle, [&](CUpti_CallbackId id) { return enable(id, 0) != CUPTI_SUCCESS; });
  }

  /// Hands all records over and adds up the lost ones. No lock is held, as CUPTI calls back.
  void flush() {
    cupti.must(cupti.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flushing records");
    size_t lost = 0;
    if (cupti.num_dropped(nullptr, 0, &lost) == CUPTI_SUCCESS)
      dropped += static_cast<int64_t>(lost);
  }

  /// Records for which there was no room, since ever.
  int64_t lost() const { return buffers().refused() + calls.lost(); }
  int64_t lost_since_clear() const { return dropped + lost() - lost_before; }

  static void read_filled(RecordDecoder& decoder) {
    for (const ActivityBuffers::Filled& each : buffers().take_filled()) {
      decoder.read(each.data, each.bytes);
      buffers().recycle(each);
    }
  }
};

std::string inject_nvtx() {
  try {
    const std::string path = open_cupti().path;
    setenv("NVTX_INJECTION64_PATH", path.c_str(), /*overwrite=*/1);
    return path;
  } catch (const CollectorUnavailable&) {
    return "";
  }
}

ActivityCollector::ActivityCollector() {
  if (c10::cuda::device_count() == 0)
    throw CollectorUnavailable("CUPTI_UNAVAILABLE", "this machine shows no GPU");
  // Attached once and never detached: later collectors of the process use the same place.
  static const std::shared_ptr<Impl> attached = [] {
    const auto impl = std::make_shared<Impl>();
    buffers().prepare(kReadyBuffers);
    impl->attach();
    return impl;
  }();
  impl_ = attached;
}

ActivityCollector::~ActivityCollector() {
  // Detaching is where profilers crash; the process ends soon, and recording is off.
  try {
    if (impl_->recording) stop();
  } catch (const std::exception&) {
    return;
  }
}

void ActivityCollector::start(const std::vector<RecordPart>& parts) {
  c10::cuda::device_synchronize();
  impl_->switch_on(parts);
}

void ActivityCollector::stop() {
  c10::cuda::device_synchronize();
  impl_->switch_off();
}

void ActivityCollector::clear() {
  impl_->flush();
  for (const ActivityBuffers::Filled& each : buffers().take_filled()) buffers().recycle(each);
  impl_->calls.clear();
  impl_->dropped = 0;
  impl_->lost_before = impl_->lost();
  impl_->first_time = 0;
}

void ActivityCollector::begin_here() {
  impl_->cupti.must(impl_->cupti.get_timestamp(&impl_->first_time), "the clock of CUPTI");
}

void ActivityCollector::watch_captures(const std::function<void()>& work,
                                       std::string_view step_range) {
  clear();
  start({RecordPart::kRanges});
  impl_->calls.start_nodes();
  work();
  const std::vector<LoggedNode> nodes = impl_->calls.stop_nodes();
  stop();
  impl_->flush();
  RecordDecoder decoder(impl_->cupti);
  impl_->read_filled(decoder);
  std::vector<harness::trace::NodeMade> made;
  for (const LoggedNode& node : nodes) {
    decoder.take_node(node);
    made.push_back(node.made);
  }
  impl_->captured.add(harness::trace::captured_ranges(decoder.finish(), made, step_range));
  impl_->lost_of_captures += impl_->lost_since_clear();
  clear();
}

harness::trace::Trace ActivityCollector::take() {
  impl_->flush();
  RecordDecoder decoder(impl_->cupti);
  impl_->read_filled(decoder);
  for (const LoggedCall& call : impl_->calls.take()) decoder.take_call(call);
  harness::trace::Trace trace = decoder.finish(impl_->captured, impl_->first_time);
  trace.dropped = impl_->lost_since_clear() + impl_->lost_of_captures;
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, c10::cuda::current_device()) == cudaSuccess)
    trace.device = properties.name;
  return trace;
}

std::string ActivityCollector::library() const {
  uint32_t version = 0;
  impl_->cupti.get_version(&version);
  return "CUPTI API " + std::to_string(version) + ", " + impl_->cupti.path;
}
#else
struct ActivityCollector::Impl {};

std::string inject_nvtx() { return ""; }
ActivityCollector::ActivityCollector() {
  throw CollectorUnavailable("CUPTI_UNAVAILABLE", "this build has no CUDA (NSA_ENABLE_CUDA)");
}
ActivityCollector::~ActivityCollector() = default;
void ActivityCollector::start(const std::vector<RecordPart>&) {}
void ActivityCollector::stop() {}
void ActivityCollector::clear() {}
void ActivityCollector::begin_here() {}
void ActivityCollector::watch_captures(const std::function<void()>&, std::string_view) {}
harness::trace::Trace ActivityCollector::take() { return {}; }
std::string ActivityCollector::library() const { return ""; }
#endif

}  // namespace suites
