#include "suites/instrument/cupti/record_decoder.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <memory>

namespace suites {
namespace {

using harness::trace::CallKind;
using harness::trace::Interval;
using harness::trace::Trace;
using harness::trace::WorkKind;

std::string demangled(const char* mangled) {
  if (mangled == nullptr) return "(unnamed)";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? text.get() : mangled;
}

const char* copy_name(uint8_t kind) {
  static constexpr const char* kNames[] = {"unknown copy", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                           "AtoD",         "DtoA", "DtoD", "HtoH", "PtoP"};
  return kind < std::size(kNames) ? kNames[kind] : kNames[0];
}

Interval interval(uint64_t begin, uint64_t end) {
  return {static_cast<int64_t>(begin), static_cast<int64_t>(std::max(begin, end))};
}

LoggedCall logged(const CUpti_ActivityAPI& call, CUpti_CallbackDomain domain) {
  return {domain, call.cbid, call.start, call.end, call.threadId, call.correlationId};
}

}  // namespace

void RecordDecoder::read(uint8_t* data, size_t bytes) {
  CUpti_Activity* record = nullptr;
  while (cupti_.next_record(data, bytes, &record) == CUPTI_SUCCESS) take(record);
}

void RecordDecoder::take(CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return take_kernel(*reinterpret_cast<CUpti_ActivityKernel10*>(record));
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return take_copy(*reinterpret_cast<CUpti_ActivityMemcpy6*>(record));
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return take_set(*reinterpret_cast<CUpti_ActivityMemset4*>(record));
    case CUPTI_ACTIVITY_KIND_RUNTIME:
      return take_call(
          logged(*reinterpret_cast<CUpti_ActivityAPI*>(record), CUPTI_CB_DOMAIN_RUNTIME_API));
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return take_call(
          logged(*reinterpret_cast<CUpti_ActivityAPI*>(record), CUPTI_CB_DOMAIN_DRIVER_API));
    case CUPTI_ACTIVITY_KIND_MARKER:
      return take_marker(*reinterpret_cast<CUpti_ActivityMarker2*>(record));
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return take_wait(*reinterpret_cast<CUpti_ActivitySynchronization2*>(record));
    default:
      return;
  }
}

bool RecordDecoder::has_times(uint64_t begin, uint64_t end) {
  if (begin != 0 && end >= begin) return true;
  ++trace_.foreign_times;
  return false;
}

int64_t RecordDecoder::node_number(uint64_t id) {
  if (id == 0) return 0;
  const auto next = static_cast<int64_t>(node_numbers_.size()) + 1;
  return node_numbers_.try_emplace(id, next).first->second;
}

int64_t RecordDecoder::kernel_name(const char* mangled) {
  const auto [found, first] = kernel_names_.try_emplace(mangled, 0);
  if (first) found->second = names_.index(demangled(mangled));
  return found->second;
}

void RecordDecoder::take_kernel(const CUpti_ActivityKernel10& kernel) {
  if (!has_times(kernel.start, kernel.end)) return;
  trace_.work.push_back({.kind = WorkKind::kKernel,
                         .time = interval(kernel.start, kernel.end),
                         .device = kernel.deviceId,
                         .stream = kernel.streamId,
                         .correlation = kernel.correlationId,
                         .name = kernel_name(kernel.name),
                         .graph_node = node_number(kernel.graphNodeId)});
}

void RecordDecoder::take_copy(const CUpti_ActivityMemcpy6& copy) {
  if (!has_times(copy.start, copy.end)) return;
  trace_.work.push_back({.kind = WorkKind::kCopy,
                         .time = interval(copy.start, copy.end),
                         .device = copy.deviceId,
                         .stream = copy.streamId,
                         .correlation = copy.correlationId,
                         .name = names_.index(copy_name(copy.copyKind)),
                         .bytes = static_cast<int64_t>(copy.bytes),
                         .graph_node = node_number(copy.graphNodeId)});
}

void RecordDecoder::take_set(const CUpti_ActivityMemset4& set) {
  if (!has_times(set.start, set.end)) return;
  trace_.work.push_back({.kind = WorkKind::kSet,
                         .time = interval(set.start, set.end),
                         .device = set.deviceId,
                         .stream = set.streamId,
                         .correlation = set.correlationId,
                         .name = names_.index("memset"),
                         .bytes = static_cast<int64_t>(set.bytes),
                         .graph_node = node_number(set.graphNodeId)});
}

std::pair<int64_t, CallKind> RecordDecoder::call_name(CUpti_CallbackDomain domain,
                                                      CUpti_CallbackId id) {
  const auto [found, first] = call_names_.try_emplace({static_cast<int>(domain), id});
  if (first) {
    const char* text = nullptr;
    if (cupti_.callback_name(domain, id, &text) != CUPTI_SUCCESS || text == nullptr)
      text = "unknown call";
    found->second = {names_.index(text), harness::trace::call_kind(text)};
  }
  return found->second;
}

void RecordDecoder::take_call(const LoggedCall& call) {
  if (!has_times(call.begin, call.end)) return;
  const auto [name, kind] = call_name(call.domain, call.id);
  trace_.calls.push_back({.kind = kind,
                          .time = interval(call.begin, call.end),
                          .thread = call.thread,
                          .correlation = call.correlation,
                          .name = name});
}

void RecordDecoder::take_node(const LoggedNode& node) {
  trace_.calls.push_back({.kind = CallKind::kOther,
                          .time = interval(node.at, node.at),
                          .thread = node.thread,
                          .correlation = ++nodes_made_,
                          .name = names_.index(harness::trace::kNodeMade)});
}

void RecordDecoder::take_marker(const CUpti_ActivityMarker2& marker) {
  OpenRange& range = markers_[marker.id];
  if ((marker.flags & CUPTI_ACTIVITY_FLAG_MARKER_START) != 0) {
    range.begin = marker.timestamp;
    range.thread = marker.objectId.pt.threadId;
    range.name = names_.index(marker.name == nullptr ? "(unnamed)" : marker.name);
  } else if ((marker.flags & CUPTI_ACTIVITY_FLAG_MARKER_END) != 0) {
    range.end = marker.timestamp;
  }
}

void RecordDecoder::take_wait(const CUpti_ActivitySynchronization2& wait) {
  if (wait.type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT && wait.start != 0)
    trace_.waits.push_back({static_cast<int64_t>(wait.start), wait.streamId});
}

void RecordDecoder::leave_out_before(int64_t time) {
  const auto cut = [&](auto& items) {
    std::erase_if(items, [&](const auto& one) { return one.time.begin < time; });
  };
  cut(trace_.work);
  cut(trace_.calls);
  cut(trace_.ranges);
  std::erase_if(trace_.waits, [&](const auto& wait) { return wait.at < time; });
}

void RecordDecoder::shift_times() {
  int64_t first = std::numeric_limits<int64_t>::max();
  const auto look = [&](const auto& items) {
    for (const auto& one : items) first = std::min(first, one.time.begin);
  };
  look(trace_.work);
  look(trace_.calls);
  look(trace_.ranges);
  for (const auto& wait : trace_.waits) first = std::min(first, wait.at);
  const auto shift = [&](auto& items) {
    for (auto& one : items) one.time = {one.time.begin - first, one.time.end - first};
  };
  shift(trace_.work);
  shift(trace_.calls);
  shift(trace_.ranges);
  for (auto& wait : trace_.waits) wait.at -= first;
}

Trace RecordDecoder::finish(const harness::trace::CapturedRanges& captured, uint64_t first_time) {
  for (const auto& [id, range] : markers_) {
    if (range.begin != 0 && range.end >= range.begin && range.name >= 0)
      trace_.ranges.push_back(
          {.time = interval(range.begin, range.end), .thread = range.thread, .name = range.name});
    else
      ++trace_.open_ranges;
  }
  std::sort(trace_.ranges.begin(), trace_.ranges.end(),
            [](const auto& a, const auto& b) { return a.time.begin < b.time.begin; });
  leave_out_before(static_cast<int64_t>(first_time));
  shift_times();
  captured.name_nodes(trace_, node_numbers_);
  return std::move(trace_);
}

}  // namespace suites
