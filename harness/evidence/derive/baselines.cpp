#include "harness/evidence/derive/baselines.h"

#include <charconv>

namespace harness {
namespace {

using nlohmann::json;

std::string text_at(const json& value, const char* key) {
  return value.is_object() && value.contains(key) && value[key].is_string()
             ? value[key].get<std::string>()
             : "unknown";
}

int64_t leading_number(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

HardwareKey hardware_of(const json& environment) {
  HardwareKey key;
  key.libtorch = text_at(environment.value("libraries", json::object()), "libtorch");
  const json gpus = environment.value("/gpu/gpus"_json_pointer, json::array());
  if (!gpus.is_array() || gpus.empty()) {
    key.sku = text_at(environment.value("/machine/cpu"_json_pointer, json::object()), "model");
    return key;
  }
  key.sku = text_at(gpus[0], "name");
  const json power = gpus[0].value("power_limit_w", json());
  key.power_limit_w = power.is_number() ? power.get<int64_t>() : 0;
  key.driver_major = leading_number(text_at(environment["gpu"], "driver"));
  return key;
}

std::string hardware_key(const json& environment) { return hw_key(hardware_of(environment)); }

Baselines read_baselines(const RunFolder& run, const std::string& runbook,
                         const json& environment) {
  constexpr const char* kFile = "baseline.json";
  if (!run.has(kFile)) return {};
  const BaselineSet set = parse_baseline(run.read(kFile), kFile, runbook, hardware_of(environment));
  return {set.file, set.problem, set.values, set.units, set.levels};
}

}  // namespace harness
