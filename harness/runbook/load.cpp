#include "harness/runbook/load.h"
#include "harness/runbook/metric_families.h"

#include <set>

#include "harness/runbook/checks/args.h"
#include "harness/runbook/checks/check.h"
#include "harness/runbook/checks/names.h"
#include "harness/runbook/files.h"
#include "harness/runbook/merge.h"
#include "harness/schema/error.h"
#include "harness/schema/parse/nearest.h"
#include "harness/schema/read.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path find_runbook(const std::string& name, const fs::path& folder) {
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".json");
  const fs::path path = is_path ? fs::path(name) : folder / (name + ".json");
  std::error_code error;  // a name may be longer than any file's
  if (fs::exists(path, error)) return path;
  if (is_path) throw ConfigError("runbook " + in_quotes(name) + ": no such file");
  throw ConfigError("no runbook " + in_quotes(name) + " in " + folder.string() +
                    did_you_mean(name, json_stems(folder)));
}

/// Reads a runbook and, before it, what it extends; every file is checked by itself.
class Merger {
 public:
  Merger(Source& source, fs::path folder) : source_(source), folder_(std::move(folder)) {}

  json load(const fs::path& path) {
    chain_.push_back(path);
    const json document = source_.parse(read_text(path), path.string());
    const auto extends = document.is_object() ? document.find("extends") : document.end();
    const bool partial = extends != document.end() && *extends != json("");
    const auto head =
        Reader(source_, partial ? ReadMode::kPartial : ReadMode::kFull).read<Runbook>(document);
    check_unique_ids(source_, document);
    if (head.name != path.stem().string())
      source_.fail_at_key(document, "name",
                          "name " + in_quotes(head.name) + " must be that of the file, " +
                              in_quotes(path.stem().string()));
    return partial ? merge_runbooks(load(base_of(*extends, path)), document) : document;
  }

 private:
  fs::path base_of(const json& extends, const fs::path& path) {
    const auto name = extends.get<std::string>();
    fs::path base = path.parent_path() / (name + ".json");  // beside it, else a shipped one
    std::error_code error;
    if (!fs::exists(base, error)) base = folder_ / (name + ".json");
    if (!is_plain_name(name) || !fs::exists(base, error))
      source_.fail(extends, "extends no runbook " + in_quotes(name) +
                                did_you_mean(name, json_stems(folder_)));
    for (const fs::path& known : chain_)
      if (fs::equivalent(known, base))
        source_.fail(extends, "runbooks extend each other in a cycle: " + chain_text() + name);
    return base;
  }

  std::string chain_text() const {
    std::string text;
    for (const fs::path& path : chain_) text += path.stem().string() + " -> ";
    return text;
  }

  Source& source_;
  fs::path folder_;
  std::vector<fs::path> chain_;
};

/// The kind without the figures that exist on none of the devices its phases run on.
KindSpec on_devices(KindSpec kind, const Runbook& runbook) {
  std::set<std::string> devices = {""};
  for (const PhaseSpec& phase : runbook.phases)
    if (parse_run(phase.run).kind == kind.kind) devices.insert(runbook.device_of(phase));
  std::erase_if(kind.metrics,
                [&](const MetricSpec& metric) { return !devices.contains(metric.device); });
  return kind;
}

}  // namespace

RunTarget parse_run(const std::string& run) {
  const size_t colon = run.find(':');
  const std::string program = run.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : run.substr(colon + 1);
  const bool train = program == "nsa-train";
  const bool filtered = program == "nsa-tests" || program == "nsa-bench";
  if (!contains(program_names(), program))
    throw ConfigError("run " + in_quotes(run) + " must start with one of " +
                      joined(program_names()) + did_you_mean(program, program_names()));
  if (train != (colon == std::string::npos) || (!train && rest.empty()))
    throw ConfigError("run " + in_quotes(run) + " must be builtin:NAME, nsa-worker:NAME, " +
                      "nsa-tests:FILTER, nsa-bench:FILTER or nsa-train");
  if (train || filtered) return {program, program, rest};
  return {program, rest, ""};
}

Kinds load_kinds(const fs::path& configs_dir) {
  Kinds kinds;
  const fs::path folder = configs_dir / "kinds";
  for (const std::string& name : json_stems(folder)) {
    const fs::path path = folder / (name + ".json");
    Source source;
    const json document = source.parse(read_text(path), path.string());
    const auto kind = Reader(source).read<KindSpec>(document);
    check_kind(source, document, kind, name);
    kinds[name] = expand(kind);
  }
  return kinds;
}

std::vector<std::string> list_runbooks(const fs::path& configs_dir) {
  return json_stems(configs_dir / "runbooks");
}

LoadedRunbook load_runbook(const std::string& name_or_path, const fs::path& configs_dir,
                           const std::vector<std::string>& overrides) {
  return load_runbook(name_or_path, configs_dir, overrides, load_kinds(configs_dir));
}

LoadedRunbook load_runbook(const std::string& name_or_path, const fs::path& configs_dir,
                           const std::vector<std::string>& overrides, const Kinds& all) {
  const fs::path folder = configs_dir / "runbooks";
  const fs::path path = find_runbook(name_or_path, folder);

  Source source;
  const json document = Merger(source, folder).load(path);
  LoadedRunbook book{Reader(source).read<Runbook>(document), {}, {}, path.string()};
  check_runbook(source, document, book.runbook, all);
  book.deviations = apply_overrides(overrides, all, book.runbook);
  book.runbook.extends.clear();  // merged: what is left stands alone
  for (PhaseSpec& phase : book.runbook.phases) {
    const KindSpec& kind = all.at(parse_run(phase.run).kind);
    book.kinds[kind.kind] = on_devices(kind, book.runbook);
    phase.args = with_defaults(phase.args, kind);
  }
  return book;
}

}  // namespace harness
