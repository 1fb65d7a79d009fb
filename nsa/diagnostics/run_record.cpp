#include "nsa/diagnostics/run_record.h"

#include <algorithm>
#include <utility>

#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

thread_local RunRecordPtr current;  // NOLINT: one slot a thread is the purpose

bool same_row(const RanBackend& a, const RanBackend& b) {
  return a.stage == b.stage && a.backend == b.backend && a.requested == b.requested &&
         a.detail == b.detail && a.reason == b.reason;
}

bool same_call(const SdpaCall& a, const SdpaCall& b) {
  return a.op == b.op && a.shapes == b.shapes && a.dtype == b.dtype && a.sequences == b.sequences;
}

}  // namespace

void merge_rows(std::vector<RanBackend>& total, const std::vector<RanBackend>& more) {
  for (const RanBackend& row : more) {
    const auto found = std::find_if(total.begin(), total.end(),
                                    [&](const RanBackend& other) { return same_row(row, other); });
    if (found == total.end()) {
      total.push_back(row);
    } else {
      found->count += row.count;
    }
  }
}

RunRecord::RunRecord(bool audit, c10::intrusive_ptr<RunRecord> parent)
    : audit_(audit), parent_(std::move(parent)) {}

void RunRecord::ran(const RanBackend& row) {
  if (parent_) parent_->ran(row);
  RanBackend one = row;
  one.count = 1;
  if (one.requested.empty()) one.requested = one.backend;
  const std::lock_guard lock(mutex_);
  merge_rows(rows_, {one});
}

void RunRecord::sdpa(const char* op, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     int64_t sequences) {
  if (parent_) parent_->sdpa(op, q, k, v, sequences);
  if (!audit_) return;
  const SdpaCall call{op,
                      {q.sizes().vec(), k.sizes().vec(), v.sizes().vec()},
                      c10::toString(q.scalar_type()),
                      sequences,
                      1};
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(calls_.begin(), calls_.end(),
                                  [&](const SdpaCall& other) { return same_call(call, other); });
  if (found == calls_.end()) {
    calls_.push_back(call);
  } else {
    ++found->count;
  }
}

std::vector<RanBackend> RunRecord::rows() const {
  const std::lock_guard lock(mutex_);
  return rows_;
}

std::vector<SdpaCall> RunRecord::sdpa_calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

RunRecordScope::RunRecordScope(RunRecordPtr record)
    : previous_(std::exchange(current, std::move(record))) {}

RunRecordScope::~RunRecordScope() { current = std::move(previous_); }

void record_backend(const char* op, const std::string& requested, const std::string& backend,
                    const std::string& detail, const std::string& reason, bool strict) {
  if (strict && !reason.empty()) {
    ArgumentCheck(op).fail("backend", requested, backend + ": " + reason);
  }
  current_record()->ran({op, backend, 1, requested, detail, reason});
}

RunRecordPtr current_record() { return current ? current : c10::make_intrusive<RunRecord>(); }

}  // namespace nsa
