// The program nsa-train as a worker and from the command line, as a process.
#include "nsa/train/program_testing.h"

namespace nsa::train {
namespace {

TEST_F(ProgramTest, WorkerHonoursTheBackendSwitchAndRecordsWhatRan) {
  json asked =
      request({{"model", "small.json"}, {"data", "synthetic"}, {"steps", 8}, {"warmup", 2}});
  asked["switches"] = {{"NSA_USE_SEL_VARLEN", "1"}};
  const auto lines = work(asked);
  const auto tables = of_type(lines, "table");
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0]["id"], "ran");
  EXPECT_EQ(tables[1]["id"], "memory");
  bool varlen = false;
  for (const json& row : tables[0]["rows"])
    if (row[0] == "sel_attn") varlen = row[1] == "varlen" && row[2] == "varlen" && row[4] > 0;
  EXPECT_TRUE(varlen) << tables[0];
  int64_t paths = 0;
  for (const json& check : of_type(lines, "check"))
    if (check["id"].get<std::string>().starts_with("path/")) {
      EXPECT_EQ(check["ok"], true) << check;
      ++paths;
    }
  EXPECT_GE(paths, 3);
  EXPECT_TRUE(metrics(lines)["memory.growth_ratio"]["value"].is_number());
}

TEST_F(ProgramTest, WorkerTrainsOnACorpusAndKeepsTheProtocol) {
  make_corpus();
  const auto lines = work(request(
      {{"model", "small.json"}, {"data", "letters"}, {"steps", 25}, {"warmup", 5}}, "time"));
  ASSERT_GT(lines.size(), 50u);
  EXPECT_EQ(lines.front()["type"], "hello");
  EXPECT_EQ(lines.front()["program"], "nsa-train");
  EXPECT_FALSE(lines.front()["switches"].empty());
  EXPECT_EQ(lines.back()["type"], "done");
  EXPECT_EQ(lines.back()["lines"], lines.size() - 1);
  ASSERT_EQ(of_type(lines, "case").size(), 1u);
  EXPECT_EQ(of_type(lines, "case")[0]["status"], "ok") << of_type(lines, "case")[0];
  EXPECT_EQ(of_type(lines, "sample").size(),
            2u * 20u);  // two series; the first five steps give none
  auto m = metrics(lines);
  for (const char* name :
       {"loss.first_nat", "loss.last20_nat", "loss.min_nat", "memory.peak_mib",
        "gate.entropy_min_nat", "gate.entropy_max_nat", "gate.varies_bool", "grad.norm_varies_bool",
        "grad.zero_count", "lr.trace_matches_bool", "steps.done_count", "data.real_bool"})
    EXPECT_FALSE(m[name]["value"].is_null()) << name;
  EXPECT_EQ(m["data.real_bool"]["value"], true);
  EXPECT_EQ(m["steps.done_count"]["value"], 25);
  EXPECT_LT(m["loss.min_nat"]["value"], m["loss.first_nat"]["value"]);
}

TEST_F(ProgramTest, KeptOutRowsAreMeasuredAndTheRecordIsThinned) {
  ASSERT_EQ(shell("seq -f 'line %.0f of a text' 5000 > t.txt; " + program("nsa-data") +
                  " --in t.txt --out .data/letters --val-every 2 > out"),
            0);
  const auto lines = work(request({{"model", "small.json"},
                                   {"data", "letters"},
                                   {"steps", 25},
                                   {"warmup", 5},
                                   {"batch", 2},
                                   {"validate_every", 10},
                                   {"validate_batches", 2},
                                   {"record_every", 4}},
                                  "time"));
  EXPECT_EQ(of_type(lines, "case")[0]["status"], "ok") << of_type(lines, "case")[0];
  std::vector<int64_t> recorded, measured;
  for (const json& beat : steps_of(lines)) {
    recorded.push_back(beat["step"]);
    if (beat["extra"].contains("validation_loss")) measured.push_back(beat["step"]);
  }
  EXPECT_EQ(recorded, (std::vector<int64_t>{1, 4, 8, 10, 12, 16, 20, 24, 25}));
  EXPECT_EQ(measured, (std::vector<int64_t>{10, 20, 25}));
  auto m = metrics(lines);
  EXPECT_EQ(m["steps.missing_count"]["value"], 0);
  EXPECT_EQ(m["loss.validation_nat"]["value"], steps_of(lines).back()["extra"]["validation_loss"]);
  EXPECT_LE(m["loss.validation_min_nat"]["value"], m["loss.validation_nat"]["value"]);
  EXPECT_THAT(slurp("err"), HasSubstr("step 10/25  loss of kept-out rows "));
}

TEST_F(ProgramTest, ValidationNeedsRowsThatWereKeptOut) {
  ASSERT_EQ(shell("yes text | head -c 40000 > t.txt; " + program("nsa-data") +
                  " --in t.txt --out .data/whole > out 2> err"),
            0);
  EXPECT_THAT(slurp("err"), HasSubstr("no block is kept out for validation: the text has fewer "
                                      "than 50 blocks"));
  const auto lines = work(request({{"model", "small.json"},
                                   {"data", "whole"},
                                   {"steps", 2},
                                   {"batch", 1},
                                   {"validate_every", 1}}));
  const std::string reason = of_type(lines, "case")[0]["reason"];
  EXPECT_THAT(reason, HasSubstr("has no tokens in split val"));
  EXPECT_THAT(reason, HasSubstr("make the corpus again and keep more blocks out"));
}

TEST_F(ProgramTest, ShowsItsStacksWhenAskedAndGoesOn) {
  EXPECT_EQ(shell(program("nsa-train") +
                  " --model small.json --data synthetic --steps 400 2> err & pid=$!; " +
                  wait_for("step 1/400", "err", "pid") + "kill -USR1 $pid; " +
                  wait_for("end of stacks", "err", "pid") + "kill -TERM $pid; wait $pid"),
            143);
  EXPECT_THAT(slurp("err"), HasSubstr("== thread "));
  EXPECT_THAT(slurp("err"), HasSubstr("== end of stacks =="));
}

TEST_F(ProgramTest, BeatsCarryEveryFieldAndMarksFollowTheStages) {
  const auto lines = work(request({{"model", "small.json"}, {"data", "synthetic"}, {"steps", 2}}));
  std::string at;
  for (const json& beat : of_type(lines, "beat")) at += beat["at"].get<std::string>()[0];
  EXPECT_EQ(at, "lfboslfbos");
  const json last = of_type(lines, "beat").back();
  EXPECT_EQ(last["step"], 2);
  EXPECT_EQ(last["of"], 2);
  EXPECT_EQ(last["rate_unit"], "tok_s");
  for (const char* key : {"loss", "grad_norm", "lr", "load_ms", "forward_ms", "backward_ms",
                          "optimizer_ms", "gate_cmp", "gate_sel", "gate_win", "gate_entropy_nat"})
    EXPECT_TRUE(last["extra"][key].is_number()) << key;
  EXPECT_TRUE(of_type(lines, "sample").empty());  // mode check gives none
  auto m = metrics(lines);
  EXPECT_EQ(m["data.real_bool"]["value"], false);
  EXPECT_TRUE(m["loss.last20_nat"]["value"].is_null());
  EXPECT_THAT(m["loss.last20_nat"]["reason"].get<std::string>(),
              HasSubstr("needs 20 steps, 2 done"));
}

TEST_F(ProgramTest, MissingDataIsReportedAndNotReplaced) {
  const auto lines = work(request({{"model", "small.json"}, {"data", "letters"}, {"steps", 25}}));
  const json end = of_type(lines, "case").at(0);
  EXPECT_EQ(end["status"], "failed");
  EXPECT_THAT(end["reason"].get<std::string>(),
              ::testing::AllOf(HasSubstr(".data/letters"), HasSubstr("tools/corpus")));
  EXPECT_EQ(metrics(lines)["data.real_bool"]["value"], false);
  EXPECT_TRUE(metrics(lines)["loss.first_nat"]["value"].is_null());
  EXPECT_EQ(of_type(lines, "finding").at(0)["code"], "DATA_MISSING");
  EXPECT_TRUE(of_type(lines, "beat").empty());
}

TEST_F(ProgramTest, SubstitutedDataIsFound) {
  make_corpus();
  fs::rename(dir_ / ".data" / "letters", dir_ / ".data" / "scripture");
  auto lines = work(request({{"model", "small.json"}, {"data", "scripture"}, {"steps", 25}}));
  EXPECT_THAT(of_type(lines, "case").at(0)["reason"].get<std::string>(),
              HasSubstr("is \"letters\", asked for was \"scripture\""));
  EXPECT_EQ(metrics(lines)["data.real_bool"]["value"], false);
}

TEST_F(ProgramTest, ArgsThatMakeNoSenseFailTheirCaseOnly) {
  json two = request({{"model", "small.json"}, {"data", "synthetic"}, {"steps", 1}});
  two["cases"] = {{{"id", "bad"}, {"args", {{"stepz", 3}}}},
                  {{"id", "good"}, {"args", json::object()}}};
  const auto lines = work(two);
  const auto ends = of_type(lines, "case");
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_THAT(ends[0]["reason"].get<std::string>(),
              HasSubstr("unknown key \"stepz\"; did you mean \"steps\"?"));
  EXPECT_EQ(ends[1]["status"], "ok");
}

TEST_F(ProgramTest, NonFiniteLossStopsAndIsLocated) {
  const auto lines = work(request({{"model", "small.json"},
                                   {"data", "synthetic"},
                                   {"steps", 50},
                                   {"warmup", 0},
                                   {"lr", 1e25},
                                   {"clip_norm", 0}}));
  EXPECT_EQ(of_type(lines, "finding").at(0)["code"], "NON_FINITE");
  EXPECT_THAT(of_type(lines, "finding").at(0)["symptom"].get<std::string>(),
              HasSubstr("are not finite"));
  EXPECT_EQ(of_type(lines, "case").at(0)["status"], "failed");
  EXPECT_LT(metrics(lines)["steps.done_count"]["value"], 50);
}

TEST_F(ProgramTest, BrokenRequestsEndWithTwoAndNoDone) {
  std::ofstream(dir_ / "request.json") << "{\"v\":2}";
  EXPECT_EQ(shell(program("nsa-train") + " --worker < request.json 3> lines 2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("v must be 1, got 2"));
  EXPECT_EQ(shell(program("nsa-train") + " --worker < /dev/null 3> lines 2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("no case line on standard input"));
  std::ofstream(dir_ / "request.json") << request(json::object()).dump();
  EXPECT_EQ(shell(program("nsa-train") + " --worker < request.json 3>&- 2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("descriptor 3 is not open"));
  EXPECT_EQ(slurp("lines"), "");
}

TEST_F(ProgramTest, UnknownSwitchIsAnErrorBeforeAnythingRuns) {
  EXPECT_EQ(shell("NSA_SEL_RANGES_V3=1 " + program("nsa-train") +
                  " --model small.json --data synthetic 2> err"),
            2);
  EXPECT_THAT(slurp("err"), HasSubstr("NSA_SEL_RANGES_V2"));
}

TEST_F(ProgramTest, ShapeSwitchesAndTheCommandLine) {
  const std::string call =
      program("nsa-train") + " --model small.json --data synthetic --steps 1 --result r 2> err";
  EXPECT_EQ(shell("NSA_BATCH_SIZE=3 " + call), 0);
  EXPECT_THAT(slurp("err"), HasSubstr("S=32 B=3 accum=1"));
  EXPECT_EQ(shell("NSA_BATCH_SIZE=3 " + call + " --batch 2 --accum 2"), 0);
  EXPECT_THAT(slurp("err"), HasSubstr("S=32 B=2 accum=2"));
}

TEST_F(ProgramTest, TerminationEndsCleanly) {
  const std::string call =
      program("nsa-train") + " --model small.json --data synthetic --steps 1000000 --result r";
  EXPECT_EQ(terminate(call + " 2> err", "r", "hello"), 143);
  EXPECT_THAT(slurp("err"), HasSubstr("; nothing was saved: no --checkpoints"));
  EXPECT_THAT(slurp("r"), ::testing::AllOf(HasSubstr("stopped by signal 15 after step"),
                                           HasSubstr("\"type\":\"done\"")));
}

TEST_F(ProgramTest, UsageErrorsNameTheRemedy) {
  EXPECT_EQ(shell(program("nsa-train") + " --model no_such --data synthetic 2> err"), 1);
  EXPECT_THAT(slurp("err"), HasSubstr("unknown model \"no_such\"; known:"));
  EXPECT_EQ(shell(program("nsa-train") + " --stepz 3 2> err >out"), 2);
  EXPECT_EQ(shell(program("nsa-train") + " --steps 0 2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("steps must be >= 1, got 0"));
  const std::string run = program("nsa-train") + " --model small.json --data synthetic --steps 1 ";
  for (const char* option : {"--checkpoints", "--out", "--result", "--sample", "--weights"}) {
    EXPECT_EQ(shell(run + option + " '' 2> err"), 2) << "a variable that was never set";
    EXPECT_THAT(slurp("err"), HasSubstr(std::string(option) + ": must not be empty"));
  }
  EXPECT_EQ(shell(run + "--out small.json/below 2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("cannot make the folder --out small.json/below: Not a "
                                      "directory; name a folder that can be written"));
  EXPECT_EQ(shell(run + "--result small.json/r 2> err"), 2);
  EXPECT_THAT(
      slurp("err"),
      HasSubstr("small.json/r cannot be opened: Not a directory; name another file with --result"));
  EXPECT_EQ(shell(run + "--result /dev/full 2> err"), 3);
  EXPECT_THAT(slurp("err"), HasSubstr("No space left on device; make room"));
  EXPECT_EQ(shell(program("nsa-train") + " --help > out"), 0);
  EXPECT_THAT(slurp("out"), HasSubstr("Examples:"));
  EXPECT_EQ(shell(program("nsa-data") + " --in nothing.txt --out c 2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("cannot read nothing.txt: No such file or directory"));
  EXPECT_EQ(shell(program("nsa-data") + " --in . --out c 2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("cannot read .: it is a folder; name its files"));
}

TEST_F(ProgramTest, ActivationCheckpointingChangesNoBit) {
  std::vector<json> losses[2];
  for (const bool on : {false, true}) {
    const auto lines = work(request({{"model", "small.json"},
                                     {"data", "synthetic"},
                                     {"steps", 4},
                                     {"warmup", 2},
                                     {"accum", 2},
                                     {"activation_checkpointing", on}}));
    for (const json& beat : of_type(lines, "beat"))
      if (beat["at"] == "step")
        losses[on].push_back({beat["extra"]["loss"], beat["extra"]["grad_norm"]});
  }
  EXPECT_EQ(losses[0].size(), 4u);
  EXPECT_EQ(losses[0], losses[1]);
}

TEST_F(ProgramTest, ADenseModelTrainsWithoutGates) {
  std::string text = slurp("small.json");
  text.replace(text.find("\"attention\""), 0, "\"attention_kind\": \"dense\", ");
  std::ofstream(dir_ / "dense.json") << text;
  const auto lines =
      work(request({{"model", "dense.json"}, {"data", "synthetic"}, {"steps", 3}, {"warmup", 2}}));
  const auto figures = metrics(lines);
  EXPECT_EQ(figures.at("steps.done_count")["value"], 3);
  EXPECT_EQ(figures.at("gate.varies_bool")["value"], nullptr);
  EXPECT_EQ(figures.at("gate.varies_bool")["reason"], "the model is dense: it has no gates");
  for (const json& check : of_type(lines, "check")) EXPECT_EQ(check["ok"], true) << check;
  EXPECT_FALSE(of_type(lines, "beat").back()["extra"].contains("gate_cmp"));
  const json ran = of_type(lines, "table").at(0)["rows"];
  ASSERT_EQ(ran.size(), 2u);
  EXPECT_EQ(ran[0], (json{"dense_attn", "auto", "sdpa", "", 6, ""}));
  EXPECT_EQ(ran[1], (json{"step", "auto", "launches", "", 3, "on a device without CUDA"}));
}

TEST_F(ProgramTest, AStepThatCannotFitIsRefusedBeforeItComputes) {
  const auto lines = work(request({{"model", "small.json"},
                                   {"data", "synthetic"},
                                   {"steps", 3},
                                   {"warmup", 2},
                                   {"batch", int64_t{1} << 32}}));
  const json finding = of_type(lines, "finding").at(0);
  EXPECT_EQ(finding["code"], "OOM");
  EXPECT_THAT(finding["symptom"].get<std::string>(), HasSubstr("predicted: "));
  EXPECT_THAT(finding["action"].get<std::string>(), HasSubstr("is predicted to fit"));
  const json end = of_type(lines, "case").at(0);
  EXPECT_EQ(end["status"], "failed");
  EXPECT_THAT(end.dump(), ::testing::AllOf(HasSubstr("a step of 4294967296 rows of "),
                                           HasSubstr(" GiB are available; nothing was computed")));
  EXPECT_TRUE(of_type(lines, "beat").empty());
}

TEST_F(ProgramTest, OutOfMemoryNamesWhatWouldFit) {
  const auto memory_table = [&](const std::vector<json>& lines) {
    for (const json& table : of_type(lines, "table"))
      if (table["id"] == "memory") return table;
    return json();
  };
  const json args = {
      {"model", "small.json"}, {"data", "synthetic"}, {"steps", 3}, {"warmup", 2}, {"batch", 64}};
  const auto lines_of_whole = work(request(args));
  const auto whole = metrics(lines_of_whole);
  const double peak = whole.at("memory.tensors_peak_mib")["value"];
  const double predicted = whole.at("memory.predicted_mib")["value"];
  EXPECT_NEAR(peak / predicted, whole.at("memory.unpredicted_ratio")["value"].get<double>(), 1e-9);
  const json rows = memory_table(lines_of_whole)["rows"];
  EXPECT_EQ(rows[rows.size() - 2], (json{"all of it, predicted", predicted}));
  EXPECT_EQ(rows.back(), (json{"tensors at their peak, measured", peak}));
  json limited = args;
  limited["memory_limit_mib"] = 0.7 * peak;
  const auto lines = work(request(limited));
  const json finding = of_type(lines, "finding").at(0);
  EXPECT_EQ(finding["code"], "OOM");
  EXPECT_THAT(finding["symptom"].get<std::string>(),
              ::testing::AllOf(HasSubstr("predicted: "), HasSubstr("measured: "),
                               HasSubstr("largest allocations: ")));
  EXPECT_THAT(finding["action"].get<std::string>(), HasSubstr("is predicted to fit"));
  EXPECT_EQ(of_type(lines, "case").at(0)["status"], "failed");
  limited["activation_checkpointing"] = true;
  EXPECT_EQ(metrics(work(request(limited))).at("steps.done_count")["value"], 3);
}

}  // namespace
}  // namespace nsa::train
