// What stands behind the answers: environment, figures, settings, files, the self test.
#include <algorithm>
#include <map>

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/markdown/table.h"

namespace reports {

using harness::Metric;
using nlohmann::json;

namespace {

/// A value on one line; lists of scalars with commas.
std::string scalar_text(const json& value) {
  if (value.is_null() || value.empty()) return "–";
  if (value.is_string()) return value.get<std::string>().empty() ? "–" : value.get<std::string>();
  if (value.is_array()) {
    std::string text;
    for (const json& item : value) text += (text.empty() ? "" : ", ") + scalar_text(item);
    return text;
  }
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Adds one row per scalar below `value`; `path` in dots.
void flatten(const json& value, const std::string& path, Table& table) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, child] : value.items())
      flatten(child, path.empty() ? key : path + "." + key, table);
    return;
  }
  if (value.is_array() && !value.empty() && value[0].is_structured()) {
    for (size_t i = 0; i < value.size(); ++i)
      flatten(value[i], path + "." + std::to_string(i), table);
    return;
  }
  table.add({code(path), escape(scalar_text(value))});
}

/// The call without where its program and its output lay on that machine.
std::string command_line(const harness::RunInfo& run) {
  std::string line = "nsa-validate";
  for (size_t i = 1; i < run.command_line.size(); ++i) {
    const std::string& word = run.command_line[i];
    if (word == "--out") ++i;
    if (word == "--out" || word.starts_with("--out=")) continue;
    line += " " + shell_word(plain(word));
  }
  return run.command_line.empty() ? line + " --runbook " + shell_word(run.runbook) : line;
}

}  // namespace

std::string shell_word(const std::string& word) {
  const bool safe = !word.empty() && std::ranges::all_of(word, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-_./=:,+@%").find(c) != std::string_view::npos;
  });
  if (safe) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string environment_section(const Model& model) {
  const harness::RunInfo& run = model.results.run;
  if (model.results.environment.empty())
    return "## Environment\n\n**No environment was recorded.**\n\n";
  Table all({"fact", "value"});
  all.add(
      {"runbook", code(run.runbook) +
                      (run.runbook_sha256.empty() ? "" : " sha256 " + code(run.runbook_sha256))});
  all.add({"seed", std::to_string(run.seed)});
  all.add({"gate", escape(run.gate)});
  all.add({"revision", escape(run.revision) +
                           (run.supersedes.empty() ? "" : ", supersedes " + code(run.supersedes))});
  flatten(model.results.environment, "", all);
  return "## Environment\n\n" +
         folded(std::to_string(all.size()) + " recorded facts", all.markdown());
}

std::string figures_section(const Model& model) {
  const std::string out = "## Figures\n\n";
  if (model.results.metrics.empty()) return out + "**No step produced a figure.**\n\n";
  Table table({"figure", "value>", "99 %", "95 %", "n>", "method"});
  std::vector<const Metric*> none;
  size_t figures = 0;
  std::string from;
  for (const Metric& m : model.results.metrics) {
    if (!m.value || !m.withheld.empty()) {
      none.push_back(&m);
      continue;
    }
    const std::string evidence = m.samples.empty() ? "no samples" : evidence_text(model, &m);
    if (const std::string head = "**" + escape(m.phase) + "**, from " + evidence; head != from)
      table.add({from = head});
    table.add({code(m.id), escape(harness::format_value(*m.value, m.unit)),
               interval_text(m.lo, m.hi), interval_text(m.lo95, m.hi95), std::to_string(m.n),
               escape(m.method)});
    ++figures;
  }
  const std::string missing = without_figure(none);
  return out + folded(harness::counted(figures, "figure") + ", " + std::to_string(none.size()) +
                          " without a value",
                      table.markdown() +
                          (missing.empty() ? "" : "Without a value, and why:\n\n" + missing));
}

std::string settings_section(const Model& model) {
  std::string out = "## Settings used\n\n";
  if (model.results.settings.empty()) return out + "No worker reported a switch.\n\n";
  std::map<std::tuple<std::string, std::string, std::string>, std::string> phases;
  for (const harness::Setting& s : model.results.settings) {
    std::string& in = phases[{s.name, s.value, s.origin}];
    in += (in.empty() ? "" : ", ") + s.phase;
  }
  Table table({"switch", "value", "from", "steps"});
  for (const auto& [key, in] : phases)
    table.add(
        {code(std::get<0>(key)), code(std::get<1>(key)), escape(std::get<2>(key)), escape(in)});
  return out +
         folded(std::to_string(table.size()) + " switches as the steps saw them", table.markdown());
}

std::string artifacts_section(const Model& model) {
  const auto& artifacts = model.results.artifacts;
  std::string out = "## Artifacts\n\n";
  if (artifacts.empty()) return out + "None were recorded.\n\n";
  struct Written {
    size_t files = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Written> writers;
  std::string hashes;
  for (const harness::Artifact& a : artifacts) {
    Written& written = writers[a.by];
    ++written.files;
    written.bytes += a.bytes;
    hashes += plain(a.sha256) + "  " + plain(a.path) + "\n";
  }
  Table table({"written by", "files>", "size>"});
  for (const auto& [by, written] : writers)
    table.add({escape(by), std::to_string(written.files), harness::format_bytes(written.bytes)});
  return out + folded(harness::counted(artifacts.size(), "file"), table.markdown()) +
         folded("Their hashes, as sha256sum --check reads them", fenced(hashes) + "\n");
}

std::string self_test_section(const Model& model) {
  std::string body;
  if (model.results.tables.is_array())
    for (const json& table : model.results.tables)
      if (text_at(table, "/id").find("catch_matrix") != std::string::npos)
        body += table_markdown(table);
  return "## Appendix: what the self test caught\n\n" +
         (body.empty() ? std::string("Not run for this build.\n\n") : body);
}

std::string reproduce_section(const Model& model) {
  const harness::Results& r = model.results;
  const std::string id = !r.criteria.empty() ? r.criteria[0].id : "C-NAME";
  const std::string commit = commit_of(r.environment);
  return "## Reproduce\n\n" +
         fenced(
             "# run again: same runbook, switches and seed " + std::to_string(r.run.seed) +
                 "; it took " + harness::format_duration(run_seconds(model)) + " on " +
                 plain(machine_text(r.environment)) + "\n" +
                 (commit.empty() ? "" : "git checkout " + plain(commit.substr(0, 12)) + "\n") +
                 command_line(r.run) +
                 "\n# check every hash, statistic and verdict of this folder; no GPU needed\n" +
                 "nsa-validate verify DIR\n# where a figure comes from: formula, samples, file\n" +
                 "nsa-validate explain " + shell_word(plain(id)) + "\n",
             "sh") +
         "\nDIR is the folder of this report.\n\n";
}

}  // namespace reports
