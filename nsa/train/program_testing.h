#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/testing/paths.h"

namespace nsa::train {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

/// Runs the programs nsa-train and nsa-data in a folder of their own, which has a small model in
/// small.json.
class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("nsa_train_test_" + std::to_string(getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    std::ofstream model(dir_ / "small.json");
    model
        << R"({"name": "small", "vocab": 256, "dim": 32, "num_layers": 2, "mlp_hidden": 48, "seq_len": 32,
      "attention": {"num_heads": 2, "num_kv_heads": 1, "qk_head_dim": 16, "v_head_dim": 16, "block_size": 8,
      "block_stride": 4, "sel_block_size": 16, "top_n": 4, "window": 16}})";
  }
  void TearDown() override { fs::remove_all(dir_); }

  /// Runs a shell command in the test's folder; returns its exit status, 128 + signal for one that
  /// was killed.
  int shell(const std::string& command) {
    const int status = std::system(("cd " + dir_.string() + " || exit 99\n" + command).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// Shell text that waits until `file` holds `text`, or the process of shell variable `pid` ends.
  static std::string wait_for(const std::string& text, const std::string& file,
                              const std::string& pid) {
    return "until grep -qs '" + text + "' " + file + " || ! kill -0 $" + pid +
           " 2> /dev/null; do sleep 0.02; done; ";
  }
  /// Runs `command` in the background, sends it SIGTERM once `file` holds `text`; its exit status.
  int terminate(const std::string& command, const std::string& file, const std::string& text) {
    return shell(command + " & pid=$!; " + wait_for(text, file, "pid") +
                 "kill -TERM $pid; wait $pid");
  }
  /// In front of a run that is not about the loader: rows are read when they are asked for, as a
  /// thread that reads ahead is held up on a busy machine, and that is LOADER_STALL.
  static constexpr const char* kReadInPlace = "NSA_FWE_PREFETCH=0 ";
  std::string program(const std::string& name) { return base::build_dir() + "/bin/" + name; }
  std::string slurp(const std::string& name) {
    std::ifstream in(dir_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  /// Starts a worker as the engine does and returns its lines.
  std::vector<json> work(const json& request, int want_status = 0) {
    std::ofstream(dir_ / "request.json") << request.dump();
    EXPECT_EQ(shell(program("nsa-train") + " --worker < request.json 3> lines 2> err > out"),
              want_status)
        << slurp("err");
    EXPECT_EQ(slurp("out"), "");
    std::vector<json> lines;
    std::ifstream in(dir_ / "lines");
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
  json request(const json& args, const std::string& mode = "check") {
    return {{"v", 1},
            {"phase", "smoke"},
            {"kind", "nsa-train"},
            {"group", "g01"},
            {"mode", mode},
            {"device", "cpu"},
            {"seed", 7},
            {"args", args},
            {"cases", {{{"id", "smoke"}, {"args", json::object()}}}},
            {"switches", json::object()},
            {"out", (dir_ / "artifacts").string()}};
  }
  std::vector<json> of_type(const std::vector<json>& lines, const std::string& type) {
    std::vector<json> result;
    for (const json& line : lines)
      if (line["type"] == type) result.push_back(line);
    return result;
  }
  /// The heartbeats of completed steps.
  std::vector<json> steps_of(const std::vector<json>& lines) {
    std::vector<json> steps;
    for (const json& line : of_type(lines, "beat"))
      if (line["at"] == "step") steps.push_back(line);
    return steps;
  }
  std::map<std::string, json> metrics(const std::vector<json>& lines) {
    std::map<std::string, json> result;
    for (const json& line : of_type(lines, "metric")) result[line["name"]] = line;
    return result;
  }
  void make_corpus() {
    std::ofstream text(dir_ / "t.txt");
    for (int i = 0; i < 2000; ++i) text << "In the beginning " << i << "\n";
    text.close();
    ASSERT_EQ(shell(program("nsa-data") + " --in t.txt --out .data/letters > out"), 0);
  }
  /// A corpus of documents shorter than a row.
  void make_documents() {
    std::ofstream text(dir_ / "t.jsonl");
    for (int i = 0; i < 3000; ++i)
      text << json{{"text", "line " + std::to_string(i * i % 997)}}.dump() << "\n";
    text.close();
    ASSERT_EQ(shell(program("nsa-data") + " --in t.jsonl --out .data/short > out"), 0);
  }
  fs::path dir_;
};

}  // namespace nsa::train
