// Every file of the cases folder through the operators, in every mode that applies: the layer end
// to end, and each operator on the expected values of the stage before (cases_folder.h).
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>

#include "suites/eval/tests/testing.h"
#include "suites/reference_cases/cases_folder.h"

namespace suites::eval {
namespace {

/// Outputs that only some runs make; sel_margin is a remark on the case.
std::set<std::string> not_made_by(const std::string& mode) {
  return mode == "decode" ? std::set<std::string>{"sel_margin"}
                          : std::set<std::string>{"sel_margin", "reads"};
}

class CaseThroughEval : public ::testing::Test {
 public:
  explicit CaseThroughEval(std::filesystem::path path) : path_(std::move(path)) {}

  void TestBody() override {
    file_ = read_tensor_file(path_);
    const ReferenceCase c = load_case(path_);
    expected_ = c.expected;
    if (c.kind == "forward" || c.kind == "decode") {
      for (const char* mode : {"batched", "sequential", "decode"}) end_to_end(mode);
    } else {
      end_to_end("batched");
    }
    if (expected_.contains("o")) each_operator();
    EXPECT_GT(compared_, 0);
    std::printf("  %s: %d comparisons\n", c.kind.c_str(), compared_);
  }

 private:
  void end_to_end(const std::string& mode) {
    SCOPED_TRACE(mode);
    EvalOptions options;
    options.mode = mode;
    const TensorFile out = evaluate(file_, options).file;
    compared_ += expect_agreement(out, expected_, not_made_by(mode));
  }

  /// --op on the expected values of `stages`, held to the expected values of `outputs`.
  void one_operator(const char* op, const std::set<std::string>& stages,
                    const std::set<std::string>& outputs) {
    SCOPED_TRACE(std::string("--op ") + op);
    const auto has = [&](const std::string& name) { return expected_.contains(name); };
    if (!std::ranges::all_of(stages, has)) return;
    EvalOptions options;
    options.op = op;
    const TensorFile out = evaluate(on_expected(file_, expected_, stages), options).file;
    std::map<std::string, FileTensor> wanted;
    for (const std::string& name : outputs)
      if (has(name)) wanted[name] = expected_.at(name);
    compared_ += expect_agreement(out, wanted, {});
  }

  void each_operator() {
    one_operator("compress", {}, {"k_cmp", "v_cmp", "cu_cmp"});
    one_operator("scores", {"k_cmp", "v_cmp"}, {"p_cmp", "scores", "o_cmp", "lse_cmp"});
    one_operator("scores", {"p_cmp"}, {"scores"});
    one_operator("select", {"scores"}, {"block_idx"});
    one_operator("ranges", {"block_idx"}, {"ranges"});
    one_operator("sel_attn", {"ranges"}, {"o_sel", "lse_sel"});
    one_operator("win_attn", {}, {"o_win", "lse_win"});
    one_operator("layer", {"block_idx"}, {"ranges", "o_sel", "o"});
    one_operator("layer", {"ranges"}, {"o_sel", "lse_sel", "o"});
  }

  std::filesystem::path path_;
  TensorFile file_;
  std::map<std::string, FileTensor> expected_;
  int compared_ = 0;
};

}  // namespace
}  // namespace suites::eval

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  at::set_num_threads(1);
  return suites::run_case_tests("NsaEvalCases", [](const std::filesystem::path& path) {
    return new suites::eval::CaseThroughEval(path);
  });
}
