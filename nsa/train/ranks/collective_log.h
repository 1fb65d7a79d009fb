#pragma once
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>

namespace nsa::train {

/// The last collective of this rank, kept in a small file that is rewritten in place, so that it
/// can be read after the rank hangs or dies. Thread-safe.
class CollectiveLog {
 public:
  CollectiveLog() = default;  ///< without a file
  /// Throws InputError if the file cannot be written.
  explicit CollectiveLog(const std::filesystem::path& file);
  ~CollectiveLog();
  CollectiveLog(const CollectiveLog&) = delete;
  CollectiveLog& operator=(const CollectiveLog&) = delete;

  void at_step(int64_t step);
  /// `what` was begun and has not ended yet.
  void begin(const std::string& what);
  /// The step's collectives have ended.
  void end();

  /// "step 12: allreduce of bucket 3 (25.0 MiB), begun"
  std::string last() const;
  bool has_ended() const;

 private:
  void write() const;
  mutable std::mutex mutex_;
  int descriptor_ = -1;
  int64_t step_ = 0;
  std::string what_ = "none";
  bool ended_ = true;
};

}  // namespace nsa::train
