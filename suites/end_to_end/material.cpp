// Runbooks, configs and runs that the tests of this folder share.
#include <algorithm>
#include <stdexcept>

#include "suites/end_to_end/command.h"

#include "base/testing/paths.h"

namespace suites::end_to_end {
namespace fs = std::filesystem;
namespace {

const fs::path kTestdata = fs::path(base::source_dir()) / "suites" / "end_to_end" / "testdata";

fs::path make_configs() {
  const fs::path dir = fresh_dir("configs");
  fs::copy(fs::path(base::source_dir()) / "configs", dir, fs::copy_options::recursive);
  fs::copy(kTestdata, dir / "runbooks");
  for (const auto& entry : fs::directory_iterator(dir / "kinds")) {
    nlohmann::json kind = nlohmann::json::parse(read_file(entry.path()));
    const bool takes = kind["program"] == "nsa-worker" || kind["program"] == "nsa-train";
    const auto known = std::ranges::find(kind["args"], "fault", [](const nlohmann::json& argument) {
      return argument["name"].get<std::string>();
    });
    if (!takes || known != kind["args"].end()) continue;
    kind["args"].push_back(
        {{"name", "fault"}, {"type", "string"}, {"default", ""}, {"doc", "id of a fault"}});
    write_file(entry.path(), kind.dump(2));
  }
  return dir;
}

fs::path make_mini_run() {
  const fs::path dir = fresh_dir("mini");
  const Outcome done = validate({"--runbook", runbook("mini"), "--out", dir.string()});
  if (done.exit_code != 0) throw std::runtime_error("the healthy run is not GO:\n" + done.output);
  return dir;
}

}  // namespace

std::string runbook(const std::string& name) { return (kTestdata / (name + ".json")).string(); }

std::string configs_with_faults() {
  static const fs::path dir = make_configs();
  return dir.string();
}

std::string changed_runbook(const std::string& from, const std::string& name,
                            const std::vector<std::pair<std::string, std::string>>& changes) {
  std::string text = read_file(runbook(from));
  const auto replace = [&text](const std::string& before, const std::string& after) {
    const size_t at = text.find(before);
    if (at == std::string::npos) throw std::runtime_error("the runbook lacks the text " + before);
    text.replace(at, before.size(), after);
  };
  replace("\"name\": \"" + from + "\"", "\"name\": \"" + name + "\"");
  for (const auto& [before, after] : changes) replace(before, after);
  const fs::path file = fresh_dir("runbooks/" + name + ".json");
  write_file(file, text);
  return file.string();
}

const fs::path& mini_run() {
  static const fs::path dir = make_mini_run();
  return dir;
}

fs::path copy_of_mini_run(const std::string& name) {
  const fs::path dir = fresh_dir(name);
  fs::copy(mini_run(), dir, fs::copy_options::recursive);
  return dir;
}

nlohmann::json results(const fs::path& run) {
  return nlohmann::json::parse(read_file(run / "results.json"));
}

std::vector<std::string> codes(const fs::path& run) {
  std::vector<std::string> all;
  const nlohmann::json found = results(run);
  for (const auto& finding : found.at("findings")) all.push_back(finding.at("code"));
  return all;
}

}  // namespace suites::end_to_end
