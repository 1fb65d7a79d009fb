#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "suites/phases/phase.h"

namespace suites {

/// A case whose lines can be read back.
class RecordedCase {
 public:
  explicit RecordedCase(const std::string& kind,
                        const nlohmann::json& args = nlohmann::json::object(),
                        at::Device device = at::kCPU)
      : file_(testing::TempDir() + "/" + std::to_string(::getpid()) + "_" +
              std::to_string(next_++)),
        in_{.phase = "p", .kind = kind, .mode = "profile", .args = args, .out = testing::TempDir()},
        emitter_(file_),
        one_{in_, "main", Args(kind, args, find_phase_kind(kind).args), device, emitter_} {}
  ~RecordedCase() { ::unlink(file_.c_str()); }

  const PhaseCase& one() const { return one_; }
  std::vector<nlohmann::json> lines(const std::string& type) const {
    std::vector<nlohmann::json> found;
    std::ifstream in(file_);
    for (std::string text; std::getline(in, text);) {
      nlohmann::json line = nlohmann::json::parse(text);
      if (line["type"] == type) found.push_back(std::move(line));
    }
    return found;
  }
  nlohmann::json metric(const std::string& name) const {
    for (const nlohmann::json& line : lines("metric"))
      if (line["name"] == name) return line;
    return nullptr;
  }

 private:
  static inline std::atomic<int> next_ = 0;  // ranks may be threads
  std::string file_;
  base::protocol::CaseIn in_;
  base::protocol::Emitter emitter_;
  PhaseCase one_;
};

}  // namespace suites
