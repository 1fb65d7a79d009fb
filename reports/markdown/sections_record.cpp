#include <algorithm>
#include <map>

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/markdown/table.h"

namespace reports {

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

/// The facts a reader looks for first: label and where environment.json has them.
constexpr std::pair<const char*, const char*> kHighlights[] = {
    {"commit", "/git/commit"},       {"files that differ from it", "/git/dirty"},
    {"build id", "/build/build_id"}, {"compiler", "/build/compiler"},
    {"system", "/machine/os"},       {"processor", "/machine/cpu/model"},
    {"cores", "/machine/cpu/cores"}, {"memory, MiB", "/machine/memory_mib"},
    {"GPUs", "/gpu/count"},          {"GPU", "/gpu/gpus/0/name"},
    {"GPU driver", "/gpu/driver"},   {"CUDA", "/gpu/cuda"},
};

void add_highlights(const json& environment, Table& table) {
  for (const auto& [label, pointer] : kHighlights) {
    const json::json_pointer at(pointer);
    if (!environment.contains(at)) continue;
    const json& value = environment.at(at);
    if (value.is_null() || value == json("")) continue;
    if (value.is_array()) {
      std::string text = std::to_string(value.size());
      for (size_t i = 0; i < std::min<size_t>(value.size(), 5); ++i)
        text += (i ? ", " : ": ") + scalar_text(value[i]);
      table.add({label, escape(text + (value.size() > 5 ? ", ..." : ""))});
    } else {
      table.add({label, escape(scalar_text(value))});
    }
  }
}

/// A word of a shell command line, quoted where the shell would read more into it.
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

std::string command_line(const harness::RunInfo& run) {
  std::string line;
  for (const std::string& word : run.command_line)
    line += (line.empty() ? "" : " ") + shell_word(plain(word));
  return line.empty() ? "nsa-validate --runbook " + shell_word(run.runbook) : line;
}

}  // namespace

std::string environment_section(const Model& model) {
  const harness::RunInfo& run = model.results.run;
  Table table({"what", "value"});
  const std::string& scope = model.results.verdict.scope;
  table.add({"scope", scope.empty() ? "the runbook states none" : escape(scope, 2000)});
  table.add({"run", code(run.id)});
  table.add(
      {"runbook",
       code(run.runbook) +
           (run.runbook_sha256.empty() ? "" : " sha256 " + code(run.runbook_sha256.substr(0, 8)))});
  table.add({"started", escape(run.started)});
  table.add({"seed", std::to_string(run.seed)});
  table.add({"gate", escape(run.gate)});
  table.add(
      {"edition", escape(run.edition) +
                      (run.supersedes.empty() ? "" : ", supersedes " + code(run.supersedes))});
  add_highlights(model.results.environment, table);
  Table all({"fact", "value"});
  flatten(model.results.environment, "", all);
  std::string out = "## Scope and environment\n\n" + table.markdown();
  if (model.results.environment.empty()) return out + "**No environment was recorded.**\n\n";
  return out + "<details><summary>Every recorded fact</summary>\n\n" + all.markdown() +
         "</details>\n\n";
}

std::string findings_section(const Model& model, size_t max_rows) {
  std::string out = "## Findings\n\n";
  if (model.results.findings.empty()) return out + "None.\n\n";
  std::vector<const harness::Finding*> findings;
  for (const auto& f : model.results.findings) findings.push_back(&f);
  std::ranges::stable_sort(findings, {},
                           [](const auto* f) { return static_cast<int>(f->priority); });
  Table table({"priority", "finding", "symptom", "evidence", "likely cause", "what to do"});
  for (size_t i = 0; i < std::min(max_rows, findings.size()); ++i) {
    const harness::Finding& f = *findings[i];
    table.add({"**" + std::string(harness::enum_name(f.priority)) + "**",
               code(f.code) + " " + code(f.id), escape(f.symptom), code(f.fact), escape(f.cause),
               escape(f.action)});
  }
  out += table.markdown();
  if (findings.size() > max_rows)
    out += "Not shown here: " + std::to_string(findings.size() - max_rows) +
           " findings; report.md has them.\n\n";
  return out;
}

std::string recommended_section(const Model& model) {
  std::string out = "## Recommended settings\n\n";
  Table table({"use", "instead of", "speed-up>", "99 %", "figure"});
  for (const harness::Metric* m : model.comparisons) {
    const bool faster = m->verdict == "FASTER", slower = m->verdict == "SLOWER";
    if (!m->value || !m->withheld.empty() || !(faster || slower)) continue;
    if (m->details.contains("cache") && m->details["cache"] == "cold") continue;  // no setting
    const auto arm = [&](const char* which) {
      const json::json_pointer at(std::string("/") + which + "/arm");
      return m->details.contains(at) ? code(scalar_text(m->details.at(at))) : std::string(which);
    };
    const std::string baseline = arm("baseline"), candidate = arm("candidate");
    table.add({faster ? candidate : baseline, faster ? baseline : candidate,
               harness::format_number(faster ? *m->value : 1 / *m->value),
               faster           ? interval_text(m->lo, m->hi)
               : m->lo && m->hi ? harness::format_interval(1 / *m->hi, 1 / *m->lo)
                                : "–",
               code(m->id)});
  }
  if (table.empty()) return out + "None: no arm won an A/B comparison in this run.\n\n";
  return out + table.markdown() +
         "Only arms that won an A/B comparison of this run stand here.\n\n";
}

std::string deviations_section(const Model& model, size_t max_rows) {
  std::string out = "## Deviations\n\n";
  if (model.results.deviations.empty()) return out + "None: the run followed its runbook.\n\n";
  Table table({"deviation", "what differs", "why"});
  const auto& all = model.results.deviations;
  for (size_t i = 0; i < std::min(max_rows, all.size()); ++i)
    table.add({code(all[i].id), escape(all[i].what), escape(all[i].why)});
  out += table.markdown();
  if (all.size() > max_rows)
    out += "Not shown here: " + std::to_string(all.size() - max_rows) +
           " deviations; report.md has them.\n\n";
  return out;
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
  return out + table.markdown();
}

std::string artifacts_section(const Model& model) {
  const auto& artifacts = model.results.artifacts;
  std::string out = "## Artifacts\n\n";
  if (artifacts.empty()) return out + "None were recorded.\n\n";
  Table table({"artifact", "size>", "sha256", "written by"});
  std::string hashes;
  for (const harness::Artifact& a : artifacts) {
    table.add({file_link(a.path, a.path), harness::format_bytes(a.bytes),
               code(a.sha256.substr(0, 8)), escape(a.by)});
    hashes += plain(a.sha256) + "  " + plain(a.path) + "\n";
  }
  return out + table.markdown() +
         "<details><summary>Full hashes, as sha256sum --check reads them</summary>\n\n" +
         fenced(hashes) + "\n</details>\n\n";
}

std::string reproduce_section(const Model& model) {
  const harness::Results& r = model.results;
  const std::string id = !r.criteria.empty() ? r.criteria[0].id : "C-NAME";
  return "## Reproduce\n\n" +
         fenced(
             "# run again: same runbook, switches and seed " + std::to_string(r.run.seed) + "\n" +
                 command_line(r.run) +
                 "\n# check every hash, statistic and verdict of this folder; no GPU needed\n" +
                 "nsa-validate verify DIR\n# where a figure comes from: formula, samples, file\n" +
                 "nsa-validate explain " + shell_word(plain(id)) + "\n",
             "sh") +
         "\nDIR is the folder of this report.\n\n";
}

}  // namespace reports
