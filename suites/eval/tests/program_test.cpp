// The program itself: command line, exit status, files, and the worked example of README.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/testing/paths.h"
#include "suites/end_to_end/command.h"
#include "suites/reference_cases/tensor_files.h"

namespace suites::eval {
namespace {

namespace fs = std::filesystem;
using end_to_end::Outcome;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string program() { return base::build_dir() + "/bin/nsa-eval"; }

Outcome eval(std::vector<std::string> args, const std::vector<std::string>& environment = {}) {
  args.insert(args.begin(), program());
  return end_to_end::run(args, environment);
}

class NsaEvalProgram : public ::testing::Test {
 protected:
  NsaEvalProgram() : folder_(end_to_end::fresh_dir("nsa_eval")) {
    fs::create_directories(folder_);
    TensorFile file;
    file.metadata["config"] =
        R"({"kind": "ranges", "B": 1, "S": 3, "cfg": {"lsel": 2, "K": 2}, "seed": 7})";
    file.tensors["block_idx"] = from_integers({1, 3, 1, 2}, {0, 1, 0, 1, 0, 1}, Dtype::kI32);
    write_tensor_file(in(), file);
  }
  std::string in() const { return folder_ / "in.safetensors"; }
  std::string out() const { return folder_ / "out.safetensors"; }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  fs::path folder_;
};

TEST_F(NsaEvalProgram, WritesTheRequestedOutputs) {
  const Outcome outcome = eval({"--in", in(), "--out", out()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output,
            "nsa-eval: warning: block_idx: 2 ids lie outside 0..floor(t/l') and were ignored\n");
  EXPECT_EQ(to_integers(read_tensor_file(out()).tensors.at("ranges")),
            (std::vector<int64_t>{0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0}));
  EXPECT_EQ(files(), 2u);
}

TEST_F(NsaEvalProgram, HelpTeaches) {
  const Outcome outcome = eval({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* word : {"Examples:", "--mode decode --prefill 20", "gate_logits", "cu_seqlens",
                           "win_attn", "fp16", "Exit status: 0"})
    EXPECT_THAT(outcome.output, HasSubstr(word));
}

TEST_F(NsaEvalProgram, BadOptionsEndWithTwoAndReportWhich) {
  const auto expect = [&](const std::vector<std::string>& args, const std::string& text,
                          const std::vector<std::string>& environment = {}) {
    const Outcome outcome = eval(args, environment);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(text));
    EXPECT_FALSE(fs::exists(out()));
  };
  expect({}, "--in is required");
  expect({"--in", in(), "--out", out(), "--op", "attention"}, "--op: attention not in {layer,");
  expect({"--in", in(), "--out", out(), "--prefill", "-1"}, "--prefill");
  expect({"--in", "nowhere", "--out", out()}, "nowhere: cannot be read: No such file");
  expect({"--in", in(), "--out", folder_}, "is a folder; name a file");
  expect({"--in", in(), "--out", "/nowhere/out"}, "there is no folder /nowhere");
  expect({"--in", in(), "--out", out(), "--config", "nowhere"}, "--config nowhere: must be a JSON");
  expect({"--in", in(), "--out", out()}, "the nearest known name", {"NSA_NVTXX=1"});
  expect({"--in", in(), "--out", out()},
         "NSA_USE_SEL_PACK=1 (environment) is ignored by nsa-eval --op ranges",
         {"NSA_USE_SEL_PACK=1"});
  expect({"--in", in(), "--out", out()}, "NSA_KERNELS=sm80 asks for kernels, ",
         {"NSA_KERNELS=sm80"});
}

TEST_F(NsaEvalProgram, DamagedInputEndsWithTwo) {
  fs::resize_file(in(), 40);
  const Outcome outcome = eval({"--in", in(), "--out", out()});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("in.safetensors: truncated"));
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(NsaEvalProgram, InputIsNotReplaced) {
  fs::create_symlink(in(), folder_ / "link");
  fs::create_hard_link(in(), folder_ / "hard");
  for (const fs::path& same :
       {fs::path(in()), folder_ / "." / "in.safetensors", folder_ / "link", folder_ / "hard"}) {
    const Outcome outcome = eval({"--in", in(), "--out", same});
    EXPECT_EQ(outcome.exit_code, 2) << same;
    EXPECT_THAT(outcome.output, HasSubstr("is the input file; name another"));
  }
  EXPECT_TRUE(read_tensor_file(in()).has("block_idx"));
}

TEST_F(NsaEvalProgram, FullDiskEndsWithThree) {
  const Outcome outcome = eval({"--in", in(), "--out", "/dev/full"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.output, HasSubstr("/dev/full: cannot be written: No space left on device"));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

#ifdef NSA_PYTHON
/// The text between ```LANGUAGE and ```, the n-th of its kind.
std::string block_of(const std::string& page, const std::string& language, int n) {
  const std::string begin = "```" + language + "\n";
  size_t at = 0;
  for (int i = 0; i <= n; ++i) {
    at = page.find(begin, at);
    if (at == std::string::npos) throw std::runtime_error("README.md lacks a block of " + language);
    at += begin.size();
  }
  return page.substr(at, page.find("```", at) - at);
}

TEST_F(NsaEvalProgram, TheExampleOfTheReadmeHolds) {
  const std::string page =
      end_to_end::read_file(fs::path(base::source_dir()) / "suites/eval/README.md");
  const auto python = [&](const char* name, int n, const std::vector<std::string>& args) {
    const std::string script = folder_ / name;
    end_to_end::write_file(script, block_of(page, "python", n));
    std::vector<std::string> argv = {NSA_PYTHON, script};
    argv.insert(argv.end(), args.begin(), args.end());
    return end_to_end::run(argv);
  };
  const std::string made = folder_ / "made.safetensors";
  const Outcome make = python("make.py", 0, {made});
  ASSERT_EQ(make.exit_code, 0) << make.output;
  const Outcome run = eval({"--in", made, "--out", out()});
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const Outcome check = python("check.py", 1, {made, out()});
  EXPECT_EQ(check.exit_code, 0) << check.output;
  EXPECT_THAT(check.output, AllOf(HasSubstr("o_win"), HasSubstr("o_sel"), HasSubstr("agree")));

  // A wrong window must show.
  const std::string config = folder_ / "window.json";
  end_to_end::write_file(config, R"({"cfg": {"w": 13}})");
  ASSERT_EQ(eval({"--in", made, "--out", out(), "--config", config}).exit_code, 0);
  TensorFile wrong = read_tensor_file(out());
  wrong.metadata["config"] = read_tensor_file(made).metadata["config"];
  write_tensor_file(out(), wrong);
  EXPECT_NE(python("check.py", 1, {made, out()}).exit_code, 0);
}
#endif

}  // namespace
}  // namespace suites::eval
