// What a user gets for wrong words, wrong files and wrong places: a clear error and exit code 2.
#include <gmock/gmock.h>

#include "suites/end_to_end/command.h"

#include "base/testing/paths.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;

void expect_refused(const std::vector<std::string>& args, const std::string& pattern,
                    int exit_code = 2) {
  const Outcome done = validate(args);
  EXPECT_EQ(done.exit_code, exit_code) << args.front() << "\n" << done.output;
  EXPECT_THAT(done.output, ContainsRegex(pattern));
}

TEST(BadInput, WordsOfTheCommandLine) {
  expect_refused({"--runbook", "smoke_cp"}, "no runbook 'smoke_cp' .*did you mean 'smoke_cpu'");
  expect_refused({"frobnicate"}, "unknown command 'frobnicate'");
  expect_refused({"--frobnicate"}, "unknown option '--frobnicate'");
  expect_refused({"--runbook", runbook("mini"), "--gate", "loose"}, "loose");
  expect_refused({"schema", "nope"}, "unknown document 'nope'; known: baseline, .*runbook");
  expect_refused({"--runbook", runbook("mini"), "--set", "gate_health.nope=1"},
                 "declares no argument 'nope'; known: layers, dk, tokens");
  expect_refused({"--runbook", runbook("mini"), "--set", "gate.layers=1"}, "no phase 'gate'");
  expect_refused({"--resume", "/nonexistent"}, "/nonexistent.*no such run folder");
}

/// Error text that a changed mini runbook must give, with its position.
void expect_book_refused(const std::string& before, const std::string& after,
                         const std::string& pattern) {
  const std::string book = changed_runbook("mini", "bad", {{before, after}});
  expect_refused({"plan", "--runbook", book}, "bad.json:[0-9]+:[0-9]+: .*" + pattern);
}

TEST(BadInput, RunbooksNameLineAndColumn) {
  expect_book_refused("\"title\"", "\"titel\"", "unknown key 'titel'.*did you mean 'title'");
  expect_book_refused("\"title\"", "\"title\": \"x\", \"title\"", "duplicate key 'title'");
  expect_book_refused("\"phases\"", "\"seed\": \"x\", \"phases\"", "seed must be an integer");
  expect_book_refused("\"run\"", "\"needs\": [\"equivalence\"], \"run\"",
                      "cycle: environment -> equivalence -> environment");
  expect_book_refused(
      "gate_health.gates.stuck_count", "gate_health.gates.stuk_count",
      "no phase declares the metric .*did you mean 'gate_health.gates.stuck_count'");
  expect_book_refused("\"layers\": 1", "\"layers\": \"1\"",
                      "gate_health.args.layers must be an int");
  expect_book_refused("\"phases\": [", "\"phases\": [,", "");
}

TEST(BadInput, OutputFolders) {
  const fs::path file = fresh_dir("a_file");
  write_file(file, "");
  expect_refused({"--runbook", runbook("mini"), "--out", (file / "x").string()},
                 "cannot create .*a_file/x: Not a directory", 3);
  const fs::path full = fresh_dir("not_empty");
  fs::create_directories(full);
  write_file(full / "leftover.txt", "mine");
  expect_refused({"--runbook", runbook("mini"), "--out", full.string()},
                 "is not empty: it holds leftover.txt");
  EXPECT_EQ(read_file(full / "leftover.txt"), "mine");
}

TEST(BadInput, UnknownSwitchOfTheEnvironmentIsNamedAndNothingIsGreen) {
  const fs::path dir = fresh_dir("unknown_switch");
  const Outcome done =
      validate({"--runbook", runbook("mini"), "--out", dir.string()}, {"NSA_SEL_RANGES_V3=1"});
  EXPECT_EQ(done.exit_code, 1) << done.output;
  EXPECT_THAT(codes(dir), testing::Contains("CONFIG_ERROR"));
  EXPECT_THAT(read_file(dir / "report.md"), HasSubstr("switches.NSA_SEL_RANGES_V3"));
  EXPECT_THAT(read_file(dir / "phases" / "gate_health" / "g01.err"),
              ContainsRegex("CONFIG_ERROR.*NSA_SEL_RANGES_V2"));
}

/// What would run decides, not what the runbook could do: a phase that is left out looks at
/// nothing.
TEST(BadInput, ASwitchThatNoPhaseThatRunsLooksAtIsRefused) {
  const std::vector<std::string> pack = {"NSA_USE_SEL_PACK=1"};
  const auto plan = [&](const std::string& only) {
    return validate({"plan", "--runbook", "smoke_cpu", "--only", only}, pack);
  };
  EXPECT_THAT(plan("environment,oracle,operators").exit_code, testing::Ne(2));
  const Outcome ranges = plan("environment,oracle,equivalence");
  EXPECT_EQ(ranges.exit_code, 2) << ranges.output;
  EXPECT_THAT(ranges.output,
              HasSubstr("NSA_USE_SEL_PACK=1 (environment) is ignored by every phase of this run "
                        "(ranges_equivalence,nsa-tests)"));
  const Outcome tests = plan("environment,oracle");
  EXPECT_EQ(tests.exit_code, 2) << tests.output;
  EXPECT_THAT(tests.output, HasSubstr("by every phase of this run (nsa-tests)"));
  const fs::path dir = fresh_dir("ignored_switch");
  EXPECT_EQ(validate({"--runbook", "smoke_cpu", "--only", "environment,equivalence", "--out",
                      dir.string()},
                     pack)
                .exit_code,
            2);
  EXPECT_FALSE(fs::exists(dir)) << "refused before anything runs";
}

/// nsa-worker with one case of `kind` on a CPU, in a run that asks for the code of sm_80.
Outcome work_by_kernels(const std::string& kind) {
  const fs::path dir = fresh_dir("kernels_" + kind);
  fs::create_directories(dir);
  const nlohmann::json line = {{"v", 1},
                               {"phase", "p"},
                               {"kind", kind},
                               {"group", "g01"},
                               {"mode", "check"},
                               {"device", "cpu"},
                               {"seed", 1},
                               {"args", nlohmann::json::object()},
                               {"cases", {{{"id", "all"}}}},
                               {"switches", {{"NSA_KERNELS", "sm80"}}},
                               {"out", dir.string()}};
  write_file(dir / "case.json", line.dump() + "\n");
  return run({"/bin/sh", "-c",
              base::build_dir() + "/bin/nsa-worker --result " + (dir / "lines.jsonl").string() +
                  " < " + (dir / "case.json").string()});
}

/// A result of the plain operators must not pass for one of the kernels that were asked for.
TEST(BadInput, KernelsThatCannotRunAreRefusedByEveryProgram) {
  const std::string bin = base::build_dir() + "/bin/";
  const std::vector<std::pair<std::vector<std::string>, int>> calls = {
      {{bin + "nsa-tests", "--gtest_filter=Redzone.Fresh*"}, 2},
      {{bin + "nsa-train", "--model", "tiny_cpu", "--data", "synthetic", "--steps", "1"}, 1},
      {{bin + "nsa-bench", "targets", "--device", "cpu", "--case", "none"}, 2},
      {{bin + "nsa-bench", "--device", "cpu", "--benchmark_filter=none"}, 2}};
  for (const auto& [words, exit_code] : calls) {
    const Outcome done = run(words, {"NSA_KERNELS=sm80"});
    EXPECT_EQ(done.exit_code, exit_code) << words.front() << "\n" << done.output;
    EXPECT_THAT(done.output, ContainsRegex("NSA_KERNELS=sm80 asks for kernels, .*; use .*unset it"))
        << words.front();
  }
  const Outcome dense = run({bin + "nsa-train", "--model", "tiny_cpu_dense", "--data", "synthetic"},
                            {"NSA_KERNELS=sm80"});
  EXPECT_EQ(dense.exit_code, 1) << dense.output;
  EXPECT_THAT(dense.output, HasSubstr("the dense model tiny_cpu_dense runs none; unset it"));
  const Outcome refused = work_by_kernels("strict_fallback");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("CONFIG_ERROR: NSA_KERNELS=sm80 asks for kernels, "));
  const Outcome blind = work_by_kernels("gate_health");
  EXPECT_EQ(blind.exit_code, 0) << "has no kernels; it lists the switch as not honoured\n"
                                << blind.output;
}

TEST(BadInput, MissingWorkerIsDeferredByName) {
  const fs::path bin = fresh_dir("no_worker");
  fs::create_directories(bin);
  fs::copy_file(program(), bin / "nsa-validate");
  const fs::path dir = fresh_dir("no_worker_run");
  const Outcome done =
      run({(bin / "nsa-validate").string(), "--runbook", runbook("mini"), "--out", dir.string()});
  EXPECT_EQ(done.exit_code, 5) << done.output;
  EXPECT_THAT(done.output, HasSubstr("P-gate_health DEFERRED (PROGRAM_MISSING)"));
}

TEST(BadInput, ResultsCutInHalfAreEvidenceThatDoesNotHold) {
  const fs::path dir = copy_of_mini_run("half");
  const std::string whole = read_file(dir / "results.json");
  write_file(dir / "results.json", whole.substr(0, whole.size() / 2));
  expect_refused({"verify", dir.string()}, "results.json: has [0-9]+ bytes, the ledger records", 6);
  expect_refused({"explain", dir.string(), "C-gate.stuck"}, "results.json: line [0-9]+, column", 6);
  expect_refused({"compare", dir.string(), dir.string()}, "results.json: has [0-9]+ bytes", 6);
  for (const char* command : {"verify", "report", "bundle"})
    expect_refused({command, "/nonexistent"}, "/nonexistent: no such file or folder", 2);
}

// What happened is whole; what was made of it can be made again.
TEST(BadInput, ReportMakesDamagedResultsAgainFromTheirRawEvidence) {
  const fs::path dir = copy_of_mini_run("made_again");
  const std::string whole = read_file(dir / "results.json");
  write_file(dir / "results.json", whole.substr(0, whole.size() / 2));
  EXPECT_EQ(validate({"report", dir.string()}).exit_code, 0);
  EXPECT_EQ(read_file(dir / "results.json"), whole);
  EXPECT_EQ(validate({"verify", dir.string()}).exit_code, 0);
  const fs::path lines = dir / "phases" / "gate_health" / "g01.jsonl";
  write_file(lines, read_file(lines) + "{}\n");
  expect_refused({"report", dir.string()}, "g01.jsonl: has [0-9]+ bytes, the ledger records", 6);
}

const std::string kHostile = R"(\u001b[31m|`<script>alert(1)</script>\n# GO|&]]>)";

TEST(BadInput, NoProgramReportsTheControlCharactersOfItsArguments) {
  const std::string odd = "--x\x1b[31m";
  for (const char* name :
       {"nsa-validate", "nsa-tests", "nsa-train", "nsa-data", "nsa-eval", "nsa-bench"})
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{odd}, {"targets", odd}, {"--seed", odd}}) {
      std::vector<std::string> all = {base::build_dir() + "/bin/" + name};
      all.insert(all.end(), words.begin(), words.end());
      const Outcome done = run(all);
      EXPECT_EQ(done.exit_code, 2) << name << " " << words.front();
      EXPECT_EQ(done.output.find('\x1b'), std::string::npos) << name << " " << words.front();
    }
}

TEST(BadInput, SeedsOfTheBenchmarksAreNumbers) {
  const std::string bench = base::build_dir() + "/bin/nsa-bench";
  for (const char* seed : {"-1", "word", "7x", ""})
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{bench, "--seed", seed},
                                               {bench, "targets", "--seed", seed},
                                               {bench, "repeat", "--seed", seed}}) {
      const Outcome done = run(words);
      EXPECT_EQ(done.exit_code, 2) << words[1];
      EXPECT_THAT(done.output, HasSubstr("--seed must be a whole number from 0 to 2^64 - 1, got '" +
                                         std::string(seed) + "'; leave it out for 20250216"))
          << words[1];
    }
}

// CLI11 reads them as other numbers: a run of 2^63 - 1 steps, a seed of 2^64 - 1.
TEST(BadInput, NumbersThatDoNotFitAreNoOthers) {
  const std::string bin = base::build_dir() + "/bin/";
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {bin + "nsa-train", "--steps", "99999999999999999999"},
           {bin + "nsa-train", "--seed", "-1"},
           {bin + "nsa-data", "--in", "x", "--out", "y", "--val-every", "99999999999999999999"},
           {bin + "nsa-eval", "--in", "x", "--out", "y", "--prefill", "99999999999999999999"}}) {
    const Outcome done = run(words);
    EXPECT_EQ(done.exit_code, 2) << words[0];
    EXPECT_THAT(done.output, HasSubstr("must be a whole number from ")) << words[0];
    EXPECT_THAT(done.output, HasSubstr(words.back())) << words[0];
  }
}

TEST(BadInput, WorkerNamesAnUnknownArgument) {
  const std::string worker = base::build_dir() + "/bin/nsa-worker";
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {worker, "--frob"}, {worker, "--result"}, {worker, "--resident", "x"}}) {
    const Outcome done = run(words);
    EXPECT_EQ(done.exit_code, 2) << words[1];
    EXPECT_THAT(done.output, HasSubstr("'" + words[1] + "'")) << words[1];
  }
}

TEST(BadInput, HostileNamesAreRefusedWithoutTheirControlCharacters) {
  const std::string book = changed_runbook(
      "mini", "hostile", {{"\"args\"", "\"cases\": [{\"id\": \"" + kHostile + "\"}], \"args\""}});
  const Outcome done = validate({"plan", "--runbook", book});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.output, ContainsRegex("case id .* must be lower case letters, digits and _"));
  EXPECT_EQ(done.output.find('\x1b'), std::string::npos);
}

TEST(BadInput, HostileTextIsInertInReports) {
  const std::string book = changed_runbook("mini", "hostile",
                                           {{"Small healthy run", kHostile},
                                            {"The instrument on a small run", kHostile},
                                            {"gates were looked at", kHostile}});
  const fs::path dir = fresh_dir("hostile");
  const Outcome done = validate({"--runbook", book, "--out", dir.string()});
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_EQ(done.output.find('\x1b'), std::string::npos) << done.output;
  for (const char* name : {"report.md", "summary.md", "comment.md", "junit.xml"}) {
    const std::string text = read_file(dir / name);
    EXPECT_FALSE(text.empty()) << name;
    EXPECT_EQ(text.find('\x1b'), std::string::npos) << name;
    EXPECT_EQ(text.find("<script>"), std::string::npos) << name;
    EXPECT_EQ(text.find("\n# GO"), std::string::npos) << name;
  }
  const Outcome explained = validate({"explain", dir.string(), "C-gate.checked"});
  EXPECT_EQ(explained.output.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace suites::end_to_end
