#pragma once
#include <filesystem>

namespace nsa {

/// Which stages (NvtxRange) every thread of this process is in, and which it left last, in a file
/// that is mapped into memory: if the process hangs or was killed (also by kill -9), the file shows
/// what was launched last. Of a GPU that is what the host has queued; the device may be behind.
/// The file has kThreads slots of kSlotBytes each: "TID: train.step > train.forward > nsa.gate", a
/// ';' in place of the last '>' where that stage has ended, filled up with zero bytes.
/// One a process; threads beyond kThreads and texts beyond a slot are left out.
class StageRecord {
 public:
  static constexpr int kThreads = 16, kSlotBytes = 256;

  /// Throws std::system_error naming the file if it cannot be written.
  explicit StageRecord(const std::filesystem::path& file);
  /// Removes the file, unless it is to be kept: a process that ends well needs none.
  ~StageRecord();
  void keep() { kept_ = true; }
  StageRecord(const StageRecord&) = delete;
  StageRecord& operator=(const StageRecord&) = delete;

  /// The calling thread enters a stage; leaves the innermost one. Nothing without a record.
  static void enter(const char* name);
  static void leave();

 private:
  std::filesystem::path file_;
  bool kept_ = false;
};

}  // namespace nsa
