#include "nsa/train/worker_request.h"

#include "nsa/program/strict_json.h"

namespace nsa::train {
namespace {

constexpr const char* kWhere = "worker request";

nlohmann::json take_object(StrictObject& object, const nlohmann::json& json, const char* key) {
  object.ignore(key);
  if (!json.contains(key)) return nlohmann::json::object();
  if (!json[key].is_object())
    object.fail(json[key], std::string("\"") + key + "\" must be an object");
  return json[key];
}

WorkerRequest::Case read_case(const nlohmann::json& json, const std::string& text) {
  StrictObject object(json, kWhere, text);
  WorkerRequest::Case result{object.required<std::string>("id"), take_object(object, json, "args")};
  object.finish();
  return result;
}

}  // namespace

WorkerRequest parse_worker_request(const std::string& text) {
  const nlohmann::json json = parse_strict_json(text, kWhere);
  StrictObject object(json, kWhere, text);
  const auto version = object.required<int64_t>("v");
  if (version != 1) object.fail(json, "\"v\" must be 1, got " + std::to_string(version));
  WorkerRequest request;
  request.phase = object.optional<std::string>("phase", "");
  request.kind = object.optional<std::string>("kind", "");
  request.group = object.optional<std::string>("group", "");
  request.mode = object.required<std::string>("mode");
  request.device = object.required<std::string>("device");
  request.seed = object.required<uint64_t>("seed");
  request.out = object.optional<std::string>("out", "");
  request.args = take_object(object, json, "args");
  for (const auto& item : object.required<nlohmann::json::array_t>("cases"))
    request.cases.push_back(read_case(item, text));
  const nlohmann::json switches = take_object(object, json, "switches");
  for (const auto& [name, value] : switches.items()) {
    if (!value.is_string())
      object.fail(json, "switch " + name + " must be a string, got " + value.dump());
    request.switches[name] = value.get<std::string>();
  }
  object.finish();
  if (request.cases.empty()) object.fail(json, "\"cases\" must hold at least one case");
  if (request.mode != "check" && request.mode != "time" && request.mode != "profile" &&
      request.mode != "trace")
    object.fail(json,
                "\"mode\" must be check, time, profile or trace, got \"" + request.mode + "\"");
  return request;
}

TrainOptions WorkerRequest::options_of(const Case& work) const {
  TrainOptions options;
  options.device = device;
  options.seed = seed;
  options.timed = mode == "time";
  apply_args(args, "args of phase " + phase, options);
  apply_args(work.args, "args of case " + work.id, options);
  options.validate();
  return options;
}

}  // namespace nsa::train
