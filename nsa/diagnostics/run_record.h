#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace nsa {

/// What ran for one branch or stage, what was asked for, and how often.
struct RanBackend {
  std::string stage;  ///< compress, cmp_attn, select, ranges, sel_attn, win_attn, gate; a backward
                      ///< pass with a row of its own adds ".backward"
  std::string backend;    ///< what ran: plain, fused, gather, varlen, flash, v1 and so on
  int64_t count = 0;      ///< calls
  std::string requested;  ///< what was asked for
  std::string detail;  ///< variant: flash or plain (varlen), workspace or safe (packed), order of
                       ///< the selected branch and code of the kernels, sm_80 (fused)
  std::string reason;  ///< why it is not what was asked for, or was computed anew; else empty
};

/// Calls of the library's fused attention that are equal but for their data.
struct SdpaCall {
  std::string op;                            ///< such as _flash_attention_forward
  std::vector<std::vector<int64_t>> shapes;  ///< of q, k, v
  std::string dtype;
  int64_t sequences = 0;  ///< sequences of a packed call, 0 for a batched one
  int64_t count = 0;
};

/// Collects what ran. The place where work happens writes here, so that a record is evidence and
/// no plan. Safe to share between threads: backward passes on another thread write too. What is
/// written goes to `parent` as well, so that a program sees all calls of a step.
class RunRecord : public torch::CustomClassHolder {
 public:
  explicit RunRecord(bool audit = false, c10::intrusive_ptr<RunRecord> parent = {});

  /// Adds one call; equal rows are merged.
  void ran(const RanBackend& row);
  /// Adds a call when the audit is on; equal ones are merged.
  void sdpa(const char* op, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
            int64_t sequences = 0);
  std::vector<RanBackend> rows() const;
  std::vector<SdpaCall> sdpa_calls() const;

 private:
  const bool audit_;
  const c10::intrusive_ptr<RunRecord> parent_;
  mutable std::mutex mutex_;
  std::vector<RanBackend> rows_;
  std::vector<SdpaCall> calls_;
};
using RunRecordPtr = c10::intrusive_ptr<RunRecord>;

/// Makes `record` the current one of this thread while it lives; scopes nest.
class RunRecordScope {
 public:
  explicit RunRecordScope(RunRecordPtr record);
  ~RunRecordScope();
  RunRecordScope(const RunRecordScope&) = delete;
  RunRecordScope& operator=(const RunRecordScope&) = delete;

 private:
  RunRecordPtr previous_;
};

/// The current record of this thread; where there is none, a new one that is then dropped.
RunRecordPtr current_record();

/// Writes to the current record which backend an operator runs. A non-empty `reason` explains why
/// it is not the requested one; with `strict` that is an error instead:
/// `nsa::<op>: backend must be <requested>, got <backend>: <reason>`.
void record_backend(const char* op, const std::string& requested, const std::string& backend,
                    const std::string& detail, const std::string& reason, bool strict);

/// Appends `more` to `total`, adding up the counts of rows that are equal otherwise.
void merge_rows(std::vector<RanBackend>& total, const std::vector<RanBackend>& more);

}  // namespace nsa
