// What a reader with two minutes sees: verdict, answer, what to do now, on what it was measured.
#include <algorithm>
#include <cstdint>

#include "harness/results/missing_hardware.h"
#include "harness/results/number.h"
#include "harness/results/runbook_notice.h"
#include "reports/answers.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/markdown/table.h"

namespace reports {

using harness::CriterionResult;
using harness::CriterionVerdict;
using harness::Severity;
using nlohmann::json;

namespace {

std::string fact_text(const json& environment, const char* pointer) {
  const json::json_pointer at(pointer);
  if (!environment.contains(at)) return "";
  const json& value = environment.at(at);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return harness::format_number(value.get<double>());
  return "";
}

/// "51 passed, 0 failed, 2 open, 10 of steps for larger machines"
std::string counts_of(const Model& model, bool information) {
  int64_t passed = 0, failed = 0, open = 0, left_out = 0, beyond_size = 0;
  for (const CriterionResult& c : model.results.criteria) {
    if ((c.severity == Severity::kInfo) != information) continue;
    const harness::PhaseResult* phase = model.phase(c.phase);
    const bool open_of_phase = c.verdict == CriterionVerdict::kNotEvaluated && phase != nullptr;
    (c.verdict == CriterionVerdict::kPass                      ? passed
     : c.verdict == CriterionVerdict::kFail                    ? failed
     : open_of_phase && phase->cause == harness::kCauseSkipped ? left_out
     : open_of_phase && harness::is_beyond_size(*phase)        ? beyond_size
                                                               : open) += 1;
  }
  if (passed + failed + open + left_out + beyond_size == 0) return "";
  std::string text = std::to_string(passed) + " passed, " + std::to_string(failed) + " failed, " +
                     std::to_string(open) + " open";
  if (left_out > 0) text += ", " + std::to_string(left_out) + " of steps that were left out";
  if (beyond_size > 0) text += ", " + std::to_string(beyond_size) + " of steps for larger machines";
  return text;
}

std::string verdict_row(const Model& model) {
  const harness::Verdict& v = model.results.verdict;
  const std::string deciding = counts_of(model, false), information = counts_of(model, true);
  std::string text = "**" + escape(v.word) + "** (exit " + std::to_string(v.exit) +
                     "): " + (deciding.empty() ? "no criterion decides" : "criteria " + deciding);
  if (!information.empty()) text += "; for information only: " + information;
  return text;
}

/// "no changed files" of a checkout, or of the programs of an installed tree.
std::string changed_files(const json& environment) {
  const json::json_pointer at("/git/dirty");
  if (!environment.contains(at) || !environment.at(at).is_array()) return "";
  const size_t count = environment.at(at).size();
  return count == 0 ? ", no changed files"
                    : ", **" + harness::counted(count, "changed file") + "**";
}

std::string code_row(const json& environment) {
  const std::string commit = commit_of(environment);
  std::string text = commit.empty() ? "commit not known" : "commit " + code(commit.substr(0, 12));
  if (fact_text(environment, "/git/commit").empty())
    text += commit.empty() ? "" : ", recorded when the programs were built";
  else
    text += changed_files(environment);
  if (const auto id = fact_text(environment, "/build/build_id"); !id.empty())
    text += "; build id " + code(id.substr(0, 12));
  for (const auto& [label, pointer] : {std::pair{"LibTorch ", "/libraries/libtorch"},
                                       {"CUDA ", "/gpu/cuda"},
                                       {"compiler ", "/build/compiler"}})
    if (const auto value = fact_text(environment, pointer); !value.empty() && value != "unknown")
      text += ", " + std::string(label) + escape(value, 60);
  return text;
}

std::string run_row(const Model& model) {
  const harness::RunInfo& run = model.results.run;
  std::string text = escape(run.started.substr(0, std::min<size_t>(10, run.started.size())));
  text += (text.empty() ? "" : ", ") + harness::format_duration(run_seconds(model)) + " in " +
          harness::counted(model.results.phases.size(), "step") + ": " + steps_counts(model);
  if (!model.results.deviations.empty())
    text += "; " + harness::counted(model.results.deviations.size(), "deviation");
  if (!run.supersedes.empty())
    text += "; revision " + escape(run.revision) + ", which supersedes " +
            code(run.supersedes.substr(0, 12));
  return text + "; " + code(run.id);
}

/// Of the criteria that decide with this verdict, the gravest with the least margin.
const CriterionResult* weakest(const Model& model, CriterionVerdict verdict) {
  const CriterionResult* found = nullptr;
  const auto key = [](const CriterionResult* c) {
    return std::pair(static_cast<int>(c->severity), relative_room(*c));
  };
  for (const CriterionResult* c : model.criteria) {
    const harness::PhaseResult* phase = model.phase(c->phase);
    if (c->verdict != verdict || c->severity == Severity::kInfo) continue;
    if (phase != nullptr &&
        (phase->cause == harness::kCauseSkipped || harness::is_beyond_size(*phase)))
      continue;
    if (found == nullptr || key(c) < key(found)) found = c;
  }
  return found;
}

std::string named(const CriterionResult& c) {
  return code(c.id) + (c.text.empty() ? "" : " (" + escape(c.text, 200) + ")");
}

/// What keeps a run without a FAIL from GO.
std::string open_point(const Model& model) {
  for (const auto verdict : {CriterionVerdict::kInconclusive, CriterionVerdict::kNotEvaluated})
    if (const auto* open = weakest(model, verdict))
      return "decide " + named(*open) + " before you rely on it; next steps name how.";
  if (!model.results.deviations.empty())
    return "look at what deviates, " + code(model.results.deviations[0].id) + ": " +
           escape(model.results.deviations[0].what, 200) + ".";
  return "decide what is open (next steps) before you rely on it.";
}

}  // namespace

std::string commit_of(const json& environment) {
  const std::string checkout = fact_text(environment, "/git/commit");
  return checkout.empty() ? fact_text(environment, "/build/check/commit") : checkout;
}

double run_seconds(const Model& model) {
  double seconds = 0;
  for (const harness::PhaseResult& phase : model.results.phases) seconds += phase.seconds;
  return seconds;
}

/// How several GPUs reach one another; empty for one, and where that was not recorded.
std::string links_text(const json& environment) {
  const json::json_pointer place("/gpu/gpus");
  if (!environment.contains(place) || !environment.at(place).is_array()) return "";
  const json& gpus = environment.at(place);
  int64_t least = INT64_MAX;
  for (const json& gpu : gpus) {
    const auto links = gpu.is_object() ? gpu.find("nvlinks") : gpu.end();
    if (links == gpu.end() || !links->is_number_integer()) return "";
    least = std::min(least, links->get<int64_t>());
  }
  if (gpus.size() < 2) return "";
  return least > 0 ? "NVLink" : "no NVLink";
}

std::string machine_text(const json& environment) {
  std::string text;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  };
  const std::string gpus = fact_text(environment, "/gpu/count");
  const std::string gpu = fact_text(environment, "/gpu/gpus/0/name");
  if (!gpu.empty()) add((gpus.empty() ? "" : gpus + " x ") + gpu);
  add(links_text(environment));
  if (const auto watts = fact_text(environment, "/gpu/gpus/0/power_limit_w"); !watts.empty())
    add("limited to " + watts + " W");
  if (const auto driver = fact_text(environment, "/gpu/driver"); !gpu.empty() && !driver.empty())
    add("driver " + driver);
  add(fact_text(environment, "/machine/cpu/model"));
  if (const auto cores = fact_text(environment, "/machine/cpu/cores"); !cores.empty())
    add(cores + " cores");
  return text.empty() ? "not recorded" : text;
}

std::string notices(const Model& model) {
  const std::string notice = harness::runbook_notice(model.results);
  std::string out = notice.empty() ? "" : "**" + escape(notice) + "**\n\n";
  if (model.advisory_changed_exit())
    out += "**The advisory gate turned this run's exit code into 0. Its verdict is " +
           escape(model.results.verdict.word) + ".**\n\n";
  return out;
}

std::string title_line(const Model& model) {
  const harness::RunInfo& run = model.results.run;
  return status_text(model.results.verdict) + ": " +
         escape(run.runbook_title.empty() ? run.runbook : run.runbook_title);
}

std::string do_now(const Model& model) {
  if (const auto* failed = weakest(model, CriterionVerdict::kFail))
    return "find out why " + named(*failed) +
           " FAILs: " + code("nsa-validate explain " + failed->id) + ".";
  for (const harness::PhaseResult& phase : model.results.phases)
    if (phase.status == harness::StepStatus::kFailed)
      return "mend step " + code(phase.id) + ": " + escape(phase.reason, 300) + ".";
  if (model.results.verdict.word != "GO") return open_point(model);
  const bool all = std::ranges::none_of(model.results.phases, harness::is_beyond_size);
  return std::string("nothing; every question that ") + (all ? "decides" : "this machine decides") +
         " is answered with yes.";
}

std::string first_screen(const Model& model) {
  const harness::Verdict& v = model.results.verdict;
  Table facts({"", ""});
  facts.add({"verdict", verdict_row(model)});
  if (v.word != "GO") facts.add({"because", escape(v.rule, 600)});
  facts.add({"machine", escape(machine_text(model.results.environment))});
  facts.add({"code", code_row(model.results.environment)});
  facts.add({"run", run_row(model)});
  facts.add({"scope", v.scope.empty() ? "the runbook states none" : escape(v.scope, 2000)});
  facts.add({"check it", code("nsa-validate verify .") + " in this folder; " +
                             code("nsa-validate explain . answer") + " names the figures above"});
  return notices(model) + "# " + title_line(model) + "\n\n" + answer_paragraph(model) +
         "\n\n**Do now:** " + do_now(model) + "\n\n" + facts.markdown();
}

}  // namespace reports
