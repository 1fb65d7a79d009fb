#include "harness/cli/work.h"

#include "base/hash/sha256.h"
#include "harness/cli/paths.h"
#include "harness/cli/planning.h"
#include "harness/evidence/derive/baselines.h"
#include "harness/evidence/revision.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/run_files.h"
#include "harness/evidence/tables/catch_matrix.h"
#include "harness/evidence/verify.h"
#include "harness/provenance/environment.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"

namespace harness::cli {
namespace fs = std::filesystem;
namespace {

/// What the self test of this build caught on this hardware becomes part of the evidence.
void attach_catch_matrix(RunOptions& run) {
  const std::string name = catch_matrix_name(run.environment);
  if (!name.empty() && fs::exists(matrices_dir() / name))
    run.attached["catch_matrix.json"] = read_bytes(matrices_dir() / name);
}

/// The reviewed baseline of this runbook on this hardware, or the one that is named, becomes part
/// of the evidence; whether it may be used is judged with the rest.
void attach_baseline(const Options& options, Work& work) {
  if (options.baseline == "none") return;
  const bool named = !options.baseline.empty();
  const fs::path file = named ? fs::path(options.baseline)
                              : baseline_path(configs_dir(options.configs), work.runbook.name,
                                              hardware_of(work.run.environment));
  if (named && !fs::is_regular_file(file))
    throw ConfigError("--baseline " + file.string() + ": no such file; name one, or none");
  if (fs::exists(file)) work.run.attached["baseline.json"] = read_bytes(file);
}

std::string content_of(const LoadedRunbook& book) {
  return base::sha256_hex(pretty_dump(to_json(book.runbook)) + pretty_dump(to_json(book.kinds)));
}

/// Hash of the shipped runbook of this name with its kinds; null when none is shipped.
nlohmann::json shipped_runbook(const std::string& name) try {
  const fs::path configs = configs_dir("");
  if (!fs::exists(configs / "runbooks" / (name + ".json"))) return nullptr;
  return content_of(load_runbook(name, configs));
} catch (const ConfigError&) {
  return nullptr;  // nothing is shipped beside these programs, or not for them
}

/// Whether the runbook of the command line, before --set, is the shipped one of its name.
nlohmann::json runbook_json(const Options& options) {
  const LoadedRunbook book = load_runbook(options.runbook, configs_dir(options.configs));
  const std::string content = content_of(book);
  const nlohmann::json shipped = shipped_runbook(book.runbook.name);
  return {{"sha256", content}, {"shipped_sha256", shipped}, {"shipped", shipped == content}};
}

nlohmann::json environment_of(const Options& options, const Work& work) {
  return environment({.command_line = options.command_line,
                      .seed = work.runbook.seed,
                      .out = work.run.out,
                      .configs = configs_dir(options.configs)});
}

}  // namespace

void keep_catch_matrix(const Work& work, const Results& results) {
  if (work.runbook.name != "selftest") return;
  for (const PlannedPhase& phase : work.plan.phases)
    if (phase.args.value("faults", nlohmann::json()) != nlohmann::json::array({"all"})) return;
  const std::string matrix = catch_matrix_file(results);
  if (matrix.empty()) return;
  fs::create_directories(matrices_dir());
  write_bytes(matrices_dir() / catch_matrix_name(results.environment), matrix);
}

Work new_work(const Options& options) {
  Planned planned = plan_here(options);
  check_switches(planned.plan);
  Work work{.runbook = planned.book.runbook,
            .kinds = planned.book.kinds,
            .plan = planned.plan,
            .run = {}};
  work.run.out = options.out.empty() ? fs::path("runs") : fs::path(options.out);
  work.run.info.gate = options.gate;
  work.run.info.command_line = options.command_line;
  if (!options.supersedes.empty())
    follow_revision(RunFolder(options.supersedes), work.runbook.name, work.run.info,
                    work.run.attached);
  work.run.environment = environment_of(options, work);
  work.run.environment["runbook"] = runbook_json(options);
  attach_catch_matrix(work.run);
  attach_baseline(options, work);
  // Last: a call that is refused leaves no empty folder behind.
  if (options.out.empty()) {
    work.run.out = new_run_folder(work.runbook.name);
    work.run.info.id = work.run.out.filename().string();
  }
  return work;
}

Work resumed_work(const Options& options) {
  if (!options.supersedes.empty())
    throw ConfigError("--supersedes belongs to the start of a run; leave it out with --resume");
  std::error_code error;
  if (!fs::is_directory(options.resume, error))
    throw ConfigError("--resume " + options.resume +
                      ": no such run folder; start it without --resume");
  require_unfinished(options.resume);
  if (!fs::exists(fs::path(options.resume) / "run.json", error))
    throw ConfigError("--resume " + options.resume +
                      ": holds no run.json, so no run has begun there; remove the folder and start "
                      "again without --resume");
  const RunFiles files = read_run_files(RunFolder(options.resume));
  Work work{.runbook = files.runbook, .kinds = files.kinds, .plan = files.plan, .run = {}};
  work.run.out = options.resume;
  work.run.resume = true;
  work.run.info = files.run;
  // The engine compares it with that of the folder, which stays.
  work.run.environment = environment_of(options, work);
  return work;
}

}  // namespace harness::cli
