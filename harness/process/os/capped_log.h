#pragma once
#include <filesystem>

#include "harness/process/os/fd.h"

namespace harness {

/// Copies a worker's standard stream into a file, unchanged, up to a cap; beyond that it writes one
/// note and only counts.
class CappedLog {
 public:
  CappedLog() = default;  ///< of a stream that has ended without output
  /// Throws Error when the file exists or cannot be made.
  CappedLog(Fd from, const std::filesystem::path& to, uint64_t cap);

  /// Takes what is there now. Returns the number of bytes taken. Throws Error.
  uint64_t drain();

  /// Descriptor to wait on; -1 once the other side closed.
  int fd() const { return from_.get(); }
  uint64_t bytes() const { return bytes_; }  ///< written by the worker
  bool truncated() const { return bytes_ > cap_; }

 private:
  void keep(const char* data, size_t size);
  void append(const char* data, size_t size);

  Fd from_, file_;
  std::filesystem::path path_;
  uint64_t cap_ = 0, bytes_ = 0;
};

}  // namespace harness
