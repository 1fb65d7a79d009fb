#include "harness/engine/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/hash/sha256.h"
#include "harness/evidence/storage/files.h"
#include "harness/process/os/file_io.h"
#include "harness/schema/error.h"
#include "harness/schema/read.h"
#include "harness/schema/write.h"

namespace harness {
namespace fs = std::filesystem;
namespace {

/// Leftovers by name, for the error that refuses them.
std::string listing(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  std::string text;
  for (size_t i = 0; i < names.size() && i < 5; i++) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > 5) text += ", ... (" + std::to_string(names.size()) + " in all)";
  return text;
}

void create_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_file_error(folder, "create", error.value());
}

/// Waits a little: a process between fork and exec holds the lock of an engine that was just
/// killed.
Fd lock_folder(const fs::path& folder) {
  Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw_file_error(folder, "open", errno);
  for (int tries = 0; tries < 50; tries++) {
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  throw Error("another engine works in " + folder.string() + "; wait for it or use another --out");
}

/// What must not change between a run and its continuation. Minutes, reasons and raw facts may:
/// free memory is never the same twice.
nlohmann::json plan_essence(nlohmann::json plan) {
  plan.erase("facts");
  plan.erase("minutes");
  for (auto& phase : plan["phases"]) {
    phase.erase("minutes");
    phase.erase("reason");
  }
  return plan;
}

/// The origin of the figures of a run. environment.json is recorded once for all of them, so a part
/// measured on another machine, or with other switches, must not be mixed in.
nlohmann::json origin_of(const nlohmann::json& environment) {
  nlohmann::json origin;
  for (const char* at :
       {"/machine/cpu/model", "/gpu/driver", "/libraries", "/switches", "/configs"})
    origin[std::string(at).substr(1)] =
        environment.value(nlohmann::json::json_pointer(at), nlohmann::json());
  auto& cards = origin["GPUs"] = nlohmann::json::array();
  for (const auto& gpu :
       environment.value(nlohmann::json::json_pointer("/gpu/gpus"), nlohmann::json::array()))
    cards.push_back(
        {gpu.value("name", nlohmann::json()), gpu.value("power_limit_w", nlohmann::json())});
  return origin;
}

std::string utc_text(const char* format) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

void complete_info(RunInfo& info, const Runbook& runbook, const std::string& runbook_text) {
  if (info.id.empty()) info.id = runbook.name + "-" + utc_text("%Y%m%dT%H%M%SZ");
  if (info.started.empty()) info.started = utc_text("%Y-%m-%dT%H:%M:%SZ");
  if (info.runbook.empty()) info.runbook = runbook.name;
  if (info.runbook_title.empty()) info.runbook_title = runbook.title;
  if (info.runbook_sha256.empty()) info.runbook_sha256 = base::sha256_hex(runbook_text);
  info.seed = runbook.seed;
}

/// N of "GROUP.aN.suffix"; 0 for other names.
int attempt_of(const std::string& name, const std::string& group) {
  const auto prefix = group + ".a";
  if (!name.starts_with(prefix)) return 0;
  int n = 0;
  const auto [end, error] =
      std::from_chars(name.data() + prefix.size(), name.data() + name.size(), n);
  return error == std::errc() && *end == '.' ? n : 0;
}

/// None where the file is missing or is not such a record: its phase or group then runs again.
template <class Record>
std::optional<Record> read_record(const fs::path& path) {
  if (!fs::exists(path)) return {};
  try {
    return read_json<Record>(read_bytes(path), path.string());
  } catch (const ConfigError&) {
    return {};
  }
}

/// `t` of the last complete line of a worker's results; 0 without one.
double last_time(const fs::path& results) {
  std::ifstream in(results);
  std::string line, last;
  while (std::getline(in, line) && !in.eof()) last = line;
  const auto parsed = nlohmann::json::parse(last, nullptr, /*allow_exceptions=*/false);
  const auto t = parsed.is_object() ? parsed.find("t") : parsed.end();
  return t != parsed.end() && t->is_number() ? t->get<double>() : 0;
}

}  // namespace

RunDir::RunDir(const fs::path& out, bool resume) {
  if (out.empty()) throw ConfigError("--out must name a folder");
  if (resume && !fs::is_directory(out))
    throw ConfigError("--resume " + out.string() +
                      ": no such run folder; start it without --resume");
  create_folder(out);
  root_ = fs::canonical(out);
  lock_ = lock_folder(root_);
  if (!resume && !fs::is_empty(root_))
    throw ConfigError("--out " + out.string() + " is not empty: it holds " + listing(root_) +
                      "; use --resume to continue that run, or another folder");
  if (resume && fs::exists(fs::symlink_status(root_ / "ledger.jsonl")))
    throw ConfigError("--resume " + out.string() +
                      ": the run has ended and its evidence is sealed; start a new run");
  create_folder(root_ / "phases");
}

void RunDir::begin(const RunOptions& options, const Runbook& runbook, const Kinds& kinds,
                   const Plan& plan) {
  const auto runbook_text = pretty_dump(to_json(runbook));
  if (fs::exists(root_ / "run.json")) {
    check_same("runbook.json", runbook_text);
    check_same("plan.json", pretty_dump(to_json(plan)));
    check_origin(options);
    return;
  }
  write_bytes(root_ / "runbook.json", runbook_text);
  write_bytes(root_ / "kinds.json", pretty_dump(to_json(kinds)));
  write_bytes(root_ / "plan.json", pretty_dump(to_json(plan)));
  write_bytes(root_ / "environment.json", pretty_dump(options.environment));
  for (const auto& [path, text] : options.attached) {
    create_folder((root_ / path).parent_path());
    write_bytes(root_ / path, text);
  }
  auto info = options.info;
  complete_info(info, runbook, runbook_text);
  write_bytes(root_ / "run.json",
              pretty_dump(to_json(info)));  // last: from here on the run has begun
  sync_path(root_);
}

void RunDir::check_same(const std::string& file, const std::string& text) const {
  auto before = nlohmann::json::parse(read_bytes(root_ / file), nullptr, false);
  auto now = nlohmann::json::parse(text);
  if (file == "plan.json") {
    before = plan_essence(before);
    now = plan_essence(now);
  }
  if (before == now) return;
  const auto first = nlohmann::json::diff(before, now)[0];
  throw ConfigError("--resume: " + file + " of " + root_.string() + " differs at " +
                    first["path"].get<std::string>() +
                    " from the one of this call; start a new run");
}

void RunDir::check_origin(const RunOptions& options) const {
  const auto environment =
      nlohmann::json::parse(read_bytes(root_ / "environment.json"), nullptr, false);
  const nlohmann::json::json_pointer at("/build/build_id");
  const auto before = environment.value(at, nlohmann::json()),
             now = options.environment.value(at, nlohmann::json());
  if (before != now)
    throw ConfigError("--resume: the run was begun with build id " + before.dump() +
                      ", the programs have " + now.dump() +
                      "; build the same sources again or start a new run");
  const nlohmann::json origin = origin_of(environment), here = origin_of(options.environment);
  for (const auto& [fact, value] : origin.items())
    if (value != here.at(fact))
      throw ConfigError("--resume: the run was begun with " + fact + " " + value.dump() +
                        ", here it is " + here.at(fact).dump() +
                        "; go on where and as it was begun, or start a new run");
}

std::string RunDir::marker(const std::string& phase, const std::string& group) const {
  return marker_prefix() + phase + "/" + group;
}

std::optional<PhaseRecord> RunDir::phase_record(const std::string& phase) const {
  return read_record<PhaseRecord>(phase_dir(phase) / "phase.json");
}

std::optional<GroupOutcome> RunDir::group_outcome(const std::string& phase,
                                                  const std::string& group) const {
  return read_record<GroupOutcome>(phase_dir(phase) / (group + ".json"));
}

void RunDir::write_phase_record(const PhaseRecord& record) const {
  create_folder(phase_dir(record.phase));
  write_bytes(phase_dir(record.phase) / "phase.json", pretty_dump(to_json(record)));
  sync_path(phase_dir(record.phase));
}

void RunDir::write_group_outcome(const std::string& phase, const GroupOutcome& outcome) const {
  write_bytes(phase_dir(phase) / (outcome.group + ".json"), pretty_dump(to_json(outcome)));
  sync_path(phase_dir(phase));
}

std::vector<std::string> RunDir::files_of(const std::string& phase,
                                          const std::string& group) const {
  std::vector<std::string> names;
  if (!fs::is_directory(phase_dir(phase))) return names;
  for (const auto& entry : fs::directory_iterator(phase_dir(phase))) {
    const auto name = entry.path().filename().string();
    if (name.starts_with(group + ".")) names.push_back(name);
  }
  return names;
}

int RunDir::attempts_aside(const std::string& phase, const std::string& group) const {
  int last = 0;
  for (const auto& name : files_of(phase, group)) last = std::max(last, attempt_of(name, group));
  return last;
}

double RunDir::seconds_aside(const std::string& phase, const std::string& group) const {
  double sum = 0;
  for (int n = attempts_aside(phase, group); n > 0; n--) {
    const auto attempt = group + ".a" + std::to_string(n);
    const auto outcome = group_outcome(phase, attempt);
    sum += outcome ? outcome->seconds : seconds_written(phase, group, n);
  }
  return sum;
}

int RunDir::set_aside(const std::string& phase, const std::string& group) const {
  const int last = attempts_aside(phase, group);
  const auto marker = [&](int n) {
    return phase_dir(phase) / (group + ".a" + std::to_string(n) + ".moving");
  };
  const bool moving = last > 0 && fs::exists(marker(last));  // cut off between two files
  const int n = moving ? last : last + 1;
  auto names = files_of(phase, group);
  std::erase_if(names, [&](const std::string& name) { return attempt_of(name, group) > 0; });
  // The outcome goes first: without it the group counts as not run, whenever this is cut off.
  std::sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return std::pair(a != group + ".json", a) < std::pair(b != group + ".json", b);
  });
  if (!names.empty()) write_bytes(marker(n), "");
  for (const auto& name : names) {
    const auto to =
        phase_dir(phase) / (group + ".a" + std::to_string(n) + name.substr(group.size()));
    fs::rename(phase_dir(phase) / name, to);
  }
  fs::remove(marker(n));
  return names.empty() ? 0 : n;
}

double RunDir::seconds_written(const std::string& phase, const std::string& group,
                               int attempt) const {
  double seconds = 0;
  for (const auto& name : files_of(phase, group))
    if (attempt_of(name, group) == attempt && name.ends_with(".jsonl"))
      seconds = std::max(seconds, last_time(phase_dir(phase) / name));
  return seconds;
}

}  // namespace harness
