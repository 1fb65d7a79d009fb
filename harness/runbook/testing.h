#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/testing/paths.h"
#include "harness/runbook/load.h"
#include "harness/schema/testing.h"

/// Helpers of this folder's tests: a configs folder of their own, with the shipped kinds.
namespace harness {

inline std::filesystem::path source_path(const std::string& relative) {
  return std::filesystem::path(base::source_dir()) / relative;
}

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class TempConfigs {
 public:
  TempConfigs() {
    static int count = 0;
    dir_ = std::filesystem::temp_directory_path() /
           ("nsa_runbook_test." + std::to_string(getpid()) + "." + std::to_string(count++));
    std::filesystem::create_directories(dir_ / "runbooks");
    std::filesystem::copy(source_path("configs/kinds"), dir_ / "kinds");
  }
  ~TempConfigs() { std::filesystem::remove_all(dir_); }
  TempConfigs(const TempConfigs&) = delete;
  TempConfigs& operator=(const TempConfigs&) = delete;

  const std::filesystem::path& dir() const { return dir_; }
  std::filesystem::path runbook(const std::string& name) const {
    return dir_ / "runbooks" / (name + ".json");
  }
  void write(const std::string& relative, const std::string& text) const {
    std::filesystem::create_directories((dir_ / relative).parent_path());
    std::filesystem::remove(dir_ / relative);  // truncating instead makes file systems flush
    std::ofstream(dir_ / relative, std::ios::binary | std::ios::trunc) << text;
  }
  LoadedRunbook load(const std::string& text,
                     const std::vector<std::string>& overrides = {}) const {
    write("runbooks/minimal.json", text);
    return load_runbook("minimal", dir_, overrides);
  }
  /// The same with kinds that were read before: reading them all takes most of a load.
  LoadedRunbook load_with(const Kinds& kinds, const std::string& text) const {
    write("runbooks/minimal.json", text);
    return load_runbook("minimal", dir_, {}, kinds);
  }
  /// The error of loading `text`, with the folder cut off.
  std::string error_of(const std::string& text,
                       const std::vector<std::string>& overrides = {}) const {
    std::string error = config_error_of([&] { load(text, overrides); });
    const std::string prefix = (dir_ / "runbooks").string() + "/";
    while (error.find(prefix) != std::string::npos) error.erase(error.find(prefix), prefix.size());
    return error;
  }

 private:
  std::filesystem::path dir_;
};

inline std::string minimal_text() {
  return file_text(source_path("harness/runbook/testdata/minimal.json"));
}

inline nlohmann::json minimal_json() {
  return nlohmann::json::parse(minimal_text(), nullptr, true, /*ignore_comments=*/true);
}

/// `text` with its first `from` replaced by `to`, which must exist.
inline std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace harness
