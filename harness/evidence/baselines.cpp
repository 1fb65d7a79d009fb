#include "harness/evidence/baselines.h"

#include <cctype>

#include "harness/evidence/error.h"

namespace harness {
namespace {

using nlohmann::json;

std::string as_file_name(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  return text;
}

std::string text_at(const json& value, const char* key) {
  return value.contains(key) && value[key].is_string() ? value[key].get<std::string>() : "unknown";
}

void take_metrics(const json& file, Baselines& baselines) {
  for (const auto& [name, entry] : file.at("metrics").items()) {
    const json& value = entry.at("value");
    if (value.is_number()) baselines.values[name] = value.get<double>();
  }
}

}  // namespace

std::string hardware_key(const json& environment) {
  const json gpus = environment.value("/gpu/gpus"_json_pointer, json::array());
  if (gpus.empty())
    return as_file_name(
        "cpu-" + text_at(environment.value("/machine/cpu"_json_pointer, json::object()), "model"));
  const std::string driver = text_at(environment["gpu"], "driver");
  const json power = gpus[0].value("power_limit_w", json());
  return as_file_name(text_at(gpus[0], "name") + "-" +
                      (power.is_number() ? std::to_string(power.get<int64_t>()) : "?") + "W-" +
                      driver.substr(0, driver.find('.')));
}

Baselines read_baselines(const RunFolder& run, const std::string& runbook,
                         const json& environment) {
  Baselines baselines;
  if (!run.has("baseline.json")) return baselines;
  baselines.file = "baseline.json";
  try {
    const json file = run.read_json("baseline.json");
    const std::string key = file.at("hw_key").get<std::string>(), here = hardware_key(environment);
    if (file.at("schema") != "nsa-baseline/1")
      baselines.problem = "BASELINE_INVALID: schema is not nsa-baseline/1";
    else if (file.at("runbook") != runbook)
      baselines.problem = "BASELINE_INVALID: it is of another runbook than " + runbook;
    else if (key != here)
      baselines.problem =
          "BASELINE_INVALID: it is of other hardware (" + key + ", this is " + here + ")";
    take_metrics(file, baselines);
  } catch (const EvidenceError& e) {
    baselines.problem = std::string("BASELINE_INVALID: ") + e.what();
  } catch (const json::exception& e) {
    baselines.problem = std::string("BASELINE_INVALID: lacks a field: ") + e.what();
  }
  return baselines;
}

}  // namespace harness
