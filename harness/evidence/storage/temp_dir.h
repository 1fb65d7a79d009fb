#pragma once
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace harness {

/// A folder of its own, below the system's temporary folder or `parent`, removed with the object.
class TempDir {
 public:
  TempDir() : TempDir(system_folder()) {}
  /// Throws std::runtime_error naming what to do where no folder can be made.
  explicit TempDir(const std::filesystem::path& parent) {
    std::string name = (parent / "nsa-XXXXXX").string();
    if (parent.empty() || ::mkdtemp(name.data()) == nullptr)
      throw std::runtime_error(
          "no folder for temporary files; set TMPDIR to one that exists and has room");
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  static std::filesystem::path system_folder() {
    std::error_code error;
    const auto folder = std::filesystem::temp_directory_path(error);
    return error ? std::filesystem::path() : folder;
  }

  std::filesystem::path path_;
};

}  // namespace harness
