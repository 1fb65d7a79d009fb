#pragma once
#include <cstddef>
#include <filesystem>

namespace nsa::tensor_file {

/// A file that appears under its name only when it is whole: bytes go to a temporary name beside
/// it, `commit` renames. Until then, and after any failure (a full disk), the file of that name
/// is untouched and the temporary file is removed. A name that is a device or a pipe is written
/// directly. Errors are std::system_error naming what could not be done.
class ReplacedFile {
 public:
  explicit ReplacedFile(const std::filesystem::path& path);
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  void write(const void* data, size_t bytes);
  void commit();

 private:
  std::filesystem::path path_, temporary_;  ///< temporary_ is empty when written directly
  int fd_ = -1;
};

}  // namespace nsa::tensor_file
