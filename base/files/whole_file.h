#pragma once
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

namespace base {

/// What the system refused: `cannot DOING PATH: REASON`.
class FileError : public std::runtime_error {
 public:
  FileError(const char* doing, const std::filesystem::path& path, int code);
  int code() const { return code_; }  ///< errno

 private:
  int code_;
};

/// Behind the name of a file until it is whole. A process that is killed leaves such a name.
inline constexpr std::string_view kPartSuffix = ".part";

/// "X" of "X.part"; "" of other names.
inline std::string whole_of(std::string_view name) {
  const bool half = name.ends_with(kPartSuffix);
  return std::string(half ? name.substr(0, name.size() - kPartSuffix.size()) : "");
}

/// Writes `bytes` to `path` through PATH.part beside it, fsync and rename: readers see the old file
/// or the new one, even after the process was killed. Throws FileError; the old file is then
/// untouched and the part removed. A symbolic link at `path` is replaced, not followed; a device or
/// a pipe is written to.
void write_whole_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace base
