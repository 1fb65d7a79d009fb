#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/evidence/mini_run.h"
#include "harness/phases/run_alone.h"

/// A run with a finished training phase, for the tests of phases that look back at one.
namespace harness {

struct TrainingRun {
  double tok_s = 400;                    ///< of every step
  int64_t steps = 40;                    ///< fewer than 20 give no interval
  double gate_tok_s = 0;                 ///< criterion C-GATE asks for at least this; 0: none
  nlohmann::json args = {{"batch", 1}};  ///< of the phase
  nlohmann::json switches = nlohmann::json::object();
};

/// The mini run in `dir`, its phase `conform` turned into one of nsa-train that measured a rate.
inline void write_training_run(const std::filesystem::path& dir, const TrainingRun& injected = {}) {
  using nlohmann::json;
  write_mini_run(dir);
  const auto edit = [&](const char* file, const auto& change) {
    json document = json::parse(read_bytes(dir / file));
    change(document);
    write_bytes(dir / file, document.dump(2) + "\n");
  };
  edit("kinds.json", [](json& kinds) {
    kinds["mini_conform"]["program"] = "nsa-train";
    kinds["mini_conform"]["mode"] = "time";
    for (const auto& [name, unit, estimator] : {std::tuple("speed.rate_tok_s", "tok_s", "rate"),
                                                std::tuple("eta.long_run_s", "s", "eta")})
      kinds["mini_conform"]["metrics"].push_back({{"name", name},
                                                  {"unit", unit},
                                                  {"estimator", estimator},
                                                  {"source", "tok_s"},
                                                  {"doc", "invented"}});
  });
  edit("plan.json", [&](json& plan) {
    plan["phases"][0].update({{"program", "nsa-train"},
                              {"mode", "time"},
                              {"args", injected.args},
                              {"switches", injected.switches}});
  });
  edit("run.json", [](json& run) { run["runbook_sha256"] = ""; });
  if (injected.gate_tok_s > 0)
    edit("runbook.json", [&](json& book) {
      json gate = book["phases"][0]["criteria"][0];
      gate.update({{"id", "C-GATE"},
                   {"metric", "conform.speed.rate_tok_s"},
                   {"op", ">="},
                   {"value", injected.gate_tok_s},
                   {"unit", "tok_s"}});
      book["phases"][0]["criteria"].push_back(gate);
    });
  std::filesystem::remove(dir / "phases/conform/g01.jsonl");
  base::protocol::Emitter transcript((dir / "phases/conform/g01.jsonl").string());
  transcript.hello({.program = "nsa-train", .build_id = "mini-build"});
  for (const auto& [name, value] :
       {std::pair("step.tokens_count", 1000), std::pair("eta.steps_count", 7200)})
    transcript.metric({.case_id = "even", .name = name, .value = value, .unit = "count"});
  for (int64_t step = 0; step < injected.steps; ++step)
    transcript.sample({.case_id = "even",
                       .series = "tok_s",
                       .value = injected.tok_s * (1 + 0.001 * static_cast<double>(step % 3)),
                       .unit = "tok_s",
                       .round = step});
  transcript.end_case("even");
  transcript.end_case("odd");
  transcript.done();
}

/// The lines of a builtin that reads earlier phases of the run folder `run`.
template <class Run>
base::protocol::Transcript look_back(const std::filesystem::path& run, const nlohmann::json& args,
                                     Run builtin) {
  std::filesystem::remove(run / "look_back.jsonl");
  const auto transcript = run_alone(run / "look_back.jsonl", args, builtin);
  std::filesystem::remove(run / "look_back.jsonl");
  return transcript;
}

/// How the case ended: "ok", or "failed: REASON".
inline std::string end_of(const base::protocol::Transcript& transcript) {
  const auto end = transcript.ended.find("all");
  if (end == transcript.ended.end()) return "no end";
  return end->second.status == "ok" ? "ok" : end->second.status + ": " + end->second.reason;
}

inline nlohmann::json metric_of(const base::protocol::Transcript& transcript,
                                const std::string& name) {
  const auto* found = find_line<base::protocol::Metric>(
      transcript, [&](const base::protocol::Metric& metric) { return metric.name == name; });
  return found == nullptr ? nlohmann::json("absent") : found->value;
}

inline nlohmann::json rows_of(const base::protocol::Transcript& transcript, const std::string& id) {
  const auto* found = find_line<base::protocol::Table>(
      transcript, [&](const base::protocol::Table& table) { return table.id == id; });
  return found == nullptr ? nlohmann::json("absent") : found->rows;
}

}  // namespace harness
