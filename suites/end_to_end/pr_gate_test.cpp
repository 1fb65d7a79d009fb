// The gate of a change, on a repository made here: ci/pr_gate builds base and head in worktrees (a
// build of this repository copies nsa-validate and a small worker), and what was injected in the
// change turns its verdict.
#include <gmock/gmock.h>

#include <regex>

#include "base/testing/paths.h"
#include "suites/end_to_end/command.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const fs::path kSource = base::source_dir();

/// The shipped runbook without what a real build alone can show, with one A/B of 8 pairs.
std::string small_runbook() {
  json book =
      json::parse(read_file(kSource / "configs/runbooks/pr_gate.json"), nullptr, true, true);
  json phases = json::array();
  for (json phase : book["phases"]) {
    const std::string id = phase["id"];
    if (id == "environment" || id == "equivalence") continue;
    if (id == "operators")  // the stand-in reports one check of each
      for (json& c : phase["criteria"])
        if (c["op"] == ">=") c["value"] = 1;
    if (id == "speed") {
      phase["needs"] = {"operators"};
      phase["cases"] = json::array({phase["cases"][0]});
      phase["processes"] = 8;
      phase["max_processes"] = 0;
      json criteria = json::array();
      for (json c : phase["criteria"]) {
        if (c["id"] == "C-speed.forward" || c["id"] == "C-speed.backward") continue;
        if (c["id"] == "C-speed.checked") c["value"] = 16;  // one case, base and head
        criteria.push_back(c);
      }
      phase["criteria"] = criteria;
    }
    phases.push_back(phase);
  }
  book["phases"] = phases;
  for (const char* words : {"answer", "questions"})
    book.erase(words);  // they name what is left out
  return book.dump(2);
}

class PrGate : public testing::Test {
 protected:
  PrGate() : repo_(fresh_dir("pr_gate_repo")) {
    put("CMakeLists.txt", "");
    put(".gitignore", "/build/\n/runs/\n");
    put("harness/keep", "");
    put("tools/setup", "");
    put("nsa/ms", "10.0");
    put("nsa/right", "yes");
    put("suites/compare/tolerance.cpp", "constexpr double kEps = 1;\n");
    put("configs/runbooks/pr_gate.json", small_runbook());
    fs::copy(kSource / "configs/kinds", repo_ / "configs/kinds");
    fs::create_directories(repo_ / "ci");
    fs::copy(kSource / "ci/pr_gate", repo_ / "ci/pr_gate");
    git({"init", "-q", "-b", "main"});
    commit("base");
  }

  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((repo_ / path).parent_path());
    write_file(repo_ / path, text);
  }
  Outcome git(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {"/usr/bin/env", "git", "-C", repo_.string(), "-c", "user.name=n", "-c",
                      "user.email=e@e", "-c", "commit.gpgsign=false"});
    return run(arguments);
  }
  void commit(const std::string& message) const {
    git({"add", "."});
    ASSERT_EQ(git({"commit", "-q", "-m", message}).exit_code, 0);
  }
  /// Builds a worktree: the program, and a worker made of the files of nsa/.
  static std::string build() {
    const std::string worker = (kSource / "suites/end_to_end/testdata/gate_worker.sh").string();
    return "mkdir -p build/gate/bin && { ln '" + program() +
           "' build/gate/bin/ 2>/dev/null || cp '" + program() +
           "' build/gate/bin/; } && sed \"s/@MS@/$(cat nsa/ms)/; " +
           "s/@RIGHT@/$(cat nsa/right)/\" '" + worker +
           "' > build/gate/bin/nsa-worker && chmod +x build/gate/bin/nsa-worker";
  }
  Outcome gate(const std::vector<std::string>& more = {}) const {
    fs::remove_all(out_);
    fs::remove(step_summary_);
    std::vector<std::string> argv = {(repo_ / "ci/pr_gate").string(),
                                     "--base",
                                     "HEAD~1",
                                     "--build",
                                     build(),
                                     "--out",
                                     out_.string()};
    argv.insert(argv.end(), more.begin(), more.end());
    return run(argv, {"GITHUB_STEP_SUMMARY=" + step_summary_.string()});
  }
  std::string verdict_of(const std::string& criterion) const {
    const json found = results(out_);
    for (const json& c : found["criteria"])
      if (c["id"] == criterion) return c["verdict"];
    return "absent";
  }

  const fs::path repo_, out_ = fresh_dir("pr_gate_out"),
                        step_summary_ = fresh_dir("pr_gate_step.md");
};

TEST_F(PrGate, AHealthyChangeIsGoAndLeavesEveryOutput) {
  put("nsa/ms", "9.0");
  commit("Faster\n\nScope: nsa/*");
  const Outcome done = gate();
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_EQ(verdict_of("C-speed.ranges"), "PASS");
  EXPECT_THAT(read_file(out_ / "comment.md"), StartsWith("<!-- nsa-validate:pr_gate -->\n"));
  EXPECT_EQ(read_file(step_summary_), read_file(out_ / "summary.md"));
  EXPECT_TRUE(fs::exists(out_ / "junit.xml"));
  EXPECT_EQ(validate({"verify", out_.string()}).exit_code, 0);
  EXPECT_THAT(git({"worktree", "list"}).output, Not(HasSubstr("/base")));
}

TEST_F(PrGate, ALossOfThreePercentIsNoGo) {
  put("nsa/ms", "10.3");
  commit("A little slower\n\nScope: nsa/*");
  EXPECT_EQ(gate().exit_code, 1);
  EXPECT_EQ(verdict_of("C-speed.ranges"), "FAIL");
}

TEST_F(PrGate, AnInjectedSlowDownIsMeasuredTwiceAndIsNoGo) {
  put("nsa/ms", "15.0");
  commit("Slower\n\nScope: nsa/*");
  const Outcome done = gate();
  EXPECT_EQ(done.exit_code, 1) << done.output;
  EXPECT_EQ(verdict_of("C-speed.ranges"), "FAIL");
  const std::string comment = read_file(out_ / "comment.md");
  EXPECT_THAT(comment, HasSubstr("C-speed.ranges"));
  EXPECT_THAT(comment, HasSubstr("confirmed by a second measurement"));
  EXPECT_TRUE(fs::exists(out_ / "phases/speed/c08.jsonl"));
  EXPECT_EQ(validate({"verify", out_.string()}).exit_code, 0);
  // A confirmation that is taken away turns the evidence, not the verdict.
  fs::remove(out_ / "phases/speed/c08.jsonl");
  EXPECT_EQ(validate({"verify", out_.string()}).exit_code, 6);
}

TEST_F(PrGate, FewerOutputsThanPlannedFail) {
  json book = json::parse(read_file(repo_ / "configs/runbooks/pr_gate.json"));
  for (json& phase : book["phases"])
    for (json& c : phase["criteria"])
      if (c["id"] == "C-speed.checked") c["value"] = 60;
  put("configs/runbooks/pr_gate.json", book.dump(2));
  commit("As shipped");
  put("nsa/ms", "9.0");
  commit("Faster\n\nScope: nsa/*");
  EXPECT_EQ(gate().exit_code, 1);
  EXPECT_EQ(verdict_of("C-speed.checked"), "FAIL");
}

TEST_F(PrGate, AnInjectedWrongResultIsNoGoWithoutASpeed) {
  put("nsa/right", "no");
  put("nsa/ms", "1.0");
  commit("Wrong\n\nScope: nsa/*");
  const Outcome done = gate();
  EXPECT_EQ(done.exit_code, 1) << done.output;
  EXPECT_EQ(verdict_of("C-operators.mismatch"), "FAIL");
  EXPECT_EQ(verdict_of("C-speed.ranges"), "NOT_EVALUATED");
  EXPECT_THAT(codes(out_), Contains("ORACLE_MISMATCH"));
}

TEST_F(PrGate, AnInjectedThresholdEditNeedsAReasonAndIsShown) {
  put("suites/compare/tolerance.cpp", "constexpr double kEps = 100;\n");
  json book = json::parse(read_file(repo_ / "configs/runbooks/pr_gate.json"));
  for (json& phase : book["phases"])
    for (json& c : phase["criteria"])
      if (c["id"] == "C-speed.ranges") c["value"] = 0.5;
  put("configs/runbooks/pr_gate.json", book.dump(2));
  commit("Looser\n\nScope: suites/compare/*, configs/runbooks/*");
  const std::vector<std::string> quick = {"--", "--skip", "speed"};
  const Outcome without_reason = gate(quick);
  EXPECT_EQ(without_reason.exit_code, 1) << without_reason.output;
  EXPECT_EQ(verdict_of("C-edits.unexplained"), "FAIL");
  EXPECT_THAT(codes(out_), Contains("THRESHOLD_EDIT"));
  const std::string report = read_file(out_ / "report.md");
  EXPECT_THAT(report, HasSubstr("kEps = 100"));
  EXPECT_THAT(report, HasSubstr("0.975"));
  std::vector<std::string> explained = {"--reason", "fp8 \"inputs\" \\ new kernel"};
  explained.insert(explained.end(), quick.begin(), quick.end());
  const Outcome with_reason = gate(explained);
  EXPECT_EQ(with_reason.exit_code, 8) << with_reason.output;  // speed was left out: in part
  EXPECT_EQ(verdict_of("C-edits.unexplained"), "PASS");
  EXPECT_EQ(verdict_of("C-edits.none"), "FAIL");
}

// The change edits the gate itself: no phase that looks for edits, nothing watched, lines hidden
// from diffs, a test less.
TEST_F(PrGate, AChangeDoesNotLoosenTheGateItGoesThrough) {
  put("nsa/x_test.cpp", "TEST(X, Holds) {}\nTEST(X, HoldsToo) {}\n");
  commit("A test");
  json book = json::parse(read_file(repo_ / "configs/runbooks/pr_gate.json"));
  std::erase_if(book["phases"].get_ref<json::array_t&>(),
                [](const json& phase) { return phase["id"] == "edits"; });
  put("configs/runbooks/pr_gate.json", book.dump(2));
  json kind = json::parse(read_file(repo_ / "configs/kinds/threshold_edits.json"));
  for (json& arg : kind["args"])
    if (arg["name"] == "watched") arg["default"] = json::array();
  put("configs/kinds/threshold_edits.json", kind.dump(2));
  put(".gitattributes", "* -diff\n");
  put("suites/compare/tolerance.cpp", "constexpr double kEps = 100;\n");
  put("nsa/x_test.cpp", "TEST(X, Holds) {}\n");
  commit("Looser\n\nScope: *");
  const std::vector<std::string> quick = {"--", "--skip", "speed"};
  EXPECT_EQ(gate(quick).exit_code, 1);
  EXPECT_EQ(verdict_of("C-edits.unexplained"), "FAIL");
  const std::string report = read_file(out_ / "report.md");
  for (const char* edit :
       {"kEps = 100", "threshold_edits.json", "phase \"edits\"", "test X.HoldsToo"})
    EXPECT_THAT(report, HasSubstr(edit));
  const Outcome own = gate({"--own-runbook", "--", "--skip", "speed"});
  EXPECT_EQ(own.exit_code, 2) << "asked for by name, and the script still asks for the phase";
}

TEST_F(PrGate, FilesOutsideTheScopeAndAChangeWithoutOneDoNotPass) {
  const std::vector<std::string> quick = {"--", "--only", "scope"};
  put("nsa/ms", "9.0");
  put("README.md", "unrelated");
  commit("Mixed\n\nScope: nsa/*");
  gate(quick);
  EXPECT_EQ(verdict_of("C-scope.outside"), "FAIL");
  EXPECT_THAT(codes(out_), Contains("DIFF_OUT_OF_SCOPE"));
  put("nsa/ms", "8.0");
  commit("No scope");
  gate(quick);
  EXPECT_EQ(verdict_of("C-scope.changed"), "NOT_EVALUATED");
}

TEST_F(PrGate, WrongOptionsAndBrokenBuildsEndEarly) {
  const std::string script = (repo_ / "ci/pr_gate").string();
  EXPECT_EQ(run({script}).exit_code, 2);
  EXPECT_EQ(run({script, "--base", "nowhere"}).exit_code, 2);
  EXPECT_EQ(run({script, "--base", "--output=x"}).exit_code, 2);
  EXPECT_EQ(run({script, "--bass", "main"}).exit_code, 2);
  const Outcome broken = run({script, "--base", "HEAD", "--build", "echo no compiler; false"});
  EXPECT_EQ(broken.exit_code, 3);
  EXPECT_THAT(broken.output, HasSubstr("no compiler"));
}

/// What the workflow for pull requests runs, word for word, with the small build of this test.
TEST_F(PrGate, AnInterruptedOneKeepsTheProgramsThatGoOn) {
  const fs::path work = fresh_dir("pr_gate_work"), kept = work / "head/build/gate/bin/nsa-validate";
  const auto ends_with = [&](const std::string& code) {
    return run({(repo_ / "ci/pr_gate").string(), "--base", "HEAD", "--out", out_.string(), "--work",
                work.string(), "--build",
                "mkdir -p build/gate/bin; p=build/gate/bin/nsa-validate; printf '#!/bin/sh\nexit " +
                    code + "\n' > $p; chmod +x $p"});
  };
  const Outcome interrupted = ends_with("130");
  EXPECT_EQ(interrupted.exit_code, 130) << interrupted.output;
  EXPECT_THAT(interrupted.output,
              HasSubstr("continue with: " + kept.string() + " --resume " + out_.string()));
  EXPECT_TRUE(fs::exists(kept));
  write_file(work / "head/build/gate/object", "");
  const Outcome again = ends_with("131");
  EXPECT_EQ(again.exit_code, 131) << "the worktrees that are there serve: " << again.output;
  EXPECT_TRUE(fs::exists(work / "head/build/gate/object")) << "with what was built in them";
  EXPECT_EQ(ends_with("137").exit_code, 137);
  EXPECT_TRUE(fs::exists(kept)) << "killed, it goes on with these programs as well";
  EXPECT_EQ(ends_with("1").exit_code, 1);
  EXPECT_FALSE(fs::exists(kept));
  fs::create_directories(work / "head");
  write_file(work / "head/mine", "");
  const Outcome other = ends_with("0");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.output, HasSubstr("its head is no worktree of this repository"));
  EXPECT_TRUE(fs::exists(work / "head/mine"));
}

/// `git worktree add` was killed in --work inside the checkout: there git finds the checkout
/// itself, and the uncommitted work in it.
TEST_F(PrGate, AHalfMadeWorktreeIsMadeAnewAndNothingElseIsTouched) {
  const fs::path work = repo_ / "runs/work", base = work / "base";
  const auto gate_ends = [&](const std::vector<std::string>& environment = {}) {
    return run(
        {(repo_ / "ci/pr_gate").string(), "--base", "HEAD", "--out", out_.string(), "--work",
         work.string(), "--build",
         "mkdir -p build/gate/bin; p=build/gate/bin/nsa-validate; printf '#!/bin/sh\n' > $p; "
         "chmod +x $p"},
        environment);
  };
  const auto add = [&] {
    const Outcome added = git({"worktree", "add", "--detach", "--lock", "--reason", "initializing",
                               base.string(), "HEAD"});
    ASSERT_EQ(added.exit_code, 0) << added.output;
  };
  put("nsa/ms", "uncommitted");
  add();
  fs::remove_all(base);
  fs::create_directories(base);  // before its .git was written
  const Outcome empty = gate_ends();
  EXPECT_EQ(empty.exit_code, 0) << empty.output;
  EXPECT_EQ(read_file(repo_ / "nsa/ms"), "uncommitted");
  EXPECT_THAT(git({"worktree", "list"}).output, Not(HasSubstr("work/base")));

  add();
  write_file(repo_ / ".git/worktrees/base/index.lock", "");  // before its files were written
  fs::remove(base / "nsa/ms");
  const Outcome part = gate_ends();
  EXPECT_EQ(part.exit_code, 0) << part.output;
  EXPECT_THAT(git({"worktree", "list"}).output, Not(HasSubstr("work/base")));

  // Under a hook, GIT_DIR makes git write into the checkout whatever the folder is.
  git({"worktree", "add", "--detach", base.string(), "HEAD"});
  const Outcome hook = gate_ends({"GIT_DIR=" + (repo_ / ".git").string()});
  EXPECT_EQ(hook.exit_code, 0) << hook.output;
  EXPECT_EQ(git({"symbolic-ref", "HEAD"}).output, "refs/heads/main\n");

  // A folder of a person in its place, and a worktree with a branch of its own.
  add();
  git({"worktree", "unlock", base.string()});
  fs::remove_all(base);
  fs::create_directories(base);
  write_file(base / "mine", "");
  const Outcome foreign = gate_ends();
  EXPECT_EQ(foreign.exit_code, 2) << foreign.output;
  EXPECT_THAT(foreign.output, HasSubstr("remove " + base.string() + " or"));
  EXPECT_TRUE(fs::exists(base / "mine"));
  fs::remove_all(base);
  git({"worktree", "add", "--force", "-b", "mine", base.string()});
  write_file(base / "nsa/ms", "on a branch");
  EXPECT_EQ(gate_ends().exit_code, 2);
  EXPECT_EQ(read_file(base / "nsa/ms"), "on a branch");
  EXPECT_EQ(read_file(repo_ / "nsa/ms"), "uncommitted");
}

TEST_F(PrGate, TheCommandOfTheWorkflowIsTheGate) {
  const std::string workflow = read_file(kSource / "ci/github/pr_gate.yml");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(workflow, found, std::regex("run: (ci/pr_gate [^\n]*)\n")));
  put("nsa/ms", "9.0");
  put("suites/compare/tolerance.cpp", "constexpr double kEps = 100;\n");
  commit("Looser\n\nScope: nsa/*, suites/compare/*");
  const Outcome done =
      run({"/usr/bin/env", "-C", repo_.string(),
           "BASE=" + git({"rev-parse", "HEAD~1"}).output.substr(0, 40), "BUILD=" + build(),
           "/bin/bash", "-c", found[1].str() + " --build \"$BUILD\" -- --skip speed"});
  EXPECT_EQ(done.exit_code, 1) << done.output;
  EXPECT_TRUE(fs::exists(repo_ / "runs/pr_gate/comment.md"));  // the path that the workflow uploads
  EXPECT_THAT(codes(repo_ / "runs/pr_gate"), Contains("THRESHOLD_EDIT"));
  EXPECT_THAT(workflow, HasSubstr("path: runs/pr_gate/comment.md\n"));
}

}  // namespace
}  // namespace suites::end_to_end
