#include "suites/eval/record.h"

#include <nlohmann/json.hpp>

namespace suites::eval {
namespace {

using nlohmann::json;

json config_in_force(const Evaluation& run) {
  const nsa::NsaConfig& c = run.config;
  json cfg = {{"Hq", c.num_heads},
              {"Hkv", c.num_kv_heads},
              {"dk", c.qk_head_dim},
              {"dv", c.v_head_dim},
              {"l", c.block_size},
              {"d", c.block_stride},
              {"lsel", c.sel_block_size},
              {"n", c.top_n},
              {"n_initial", c.num_initial},
              {"n_local", c.num_local},
              {"w", c.window},
              {"phi", to_string(c.phi)},
              {"rope", to_string(c.rope)},
              {"rope_base", c.rope_base},
              {"rope_pairs", to_string(c.rope_pairs)},
              {"gate", to_string(c.gate)}};
  for (const auto& [key, scale] : {std::pair{"scale_cmp", c.scale_cmp},
                                   {"scale_sel", c.scale_sel},
                                   {"scale_win", c.scale_win}})
    if (scale) cfg[key] = *scale;
  // Sizes that the operator does not depend on and the file does not have were made up.
  for (const char* key :
       {"Hq", "Hkv", "dk", "dv", "l", "d", "lsel", "n", "n_initial", "n_local", "w"})
    if (!run.given.sizes.contains(key)) cfg.erase(key);
  json root = {{"name", run.given.name},
               {"kind", run.given.kind},
               {"B", run.layout.batch},
               {"S", run.layout.tokens},
               {"cfg", cfg}};
  if (run.mode == "decode") root["prefill"] = run.prefill;
  return root;
}

json what_ran(const Evaluation& run) {
  json stages = json::object();
  for (const nsa::RanBackend& row : run.record->rows()) {
    json entry = {{"backend", row.backend}, {"count", row.count}, {"requested", row.requested}};
    if (!row.detail.empty()) entry["detail"] = row.detail;
    if (!row.reason.empty()) entry["reason"] = row.reason;
    stages[row.stage].push_back(entry);
  }
  return stages;
}

json sdpa_calls(const Evaluation& run) {
  json calls = json::array();
  for (const nsa::SdpaCall& call : run.record->sdpa_calls())
    calls.push_back({{"op", call.op},
                     {"shapes", call.shapes},
                     {"dtype", call.dtype},
                     {"sequences", call.sequences},
                     {"count", call.count}});
  return calls;
}

/// The options that belong to the record, but for texts that were left to the program.
struct AskedOptions {
  const EvalOptions& options;
  json asked = json::object();

  template <class T>
  void operator()(const base::OptionDoc& option, T EvalOptions::* member) {
    const T& value = options.*member;
    if (option.recorded && json(value) != json("")) asked[std::string(option.name)] = value;
  }
};

/// Operation and mode are those that the file or the default chose where none was given.
json what_was_asked(const Evaluation& run, const std::string& op) {
  EvalOptions options = run.options;
  options.op = op;
  options.mode = run.mode;
  AskedOptions reader{.options = options};
  EvalOptions::describe(reader);
  return reader.asked;
}

}  // namespace

std::map<std::string, std::string> record_of(const Evaluation& run, const std::string& op,
                                             const nsa::SwitchSet& switches) {
  json set = json::object();
  for (const nsa::SwitchValue& s : switches.list())
    if (!switches.is_default(s.name)) set[s.name] = {{"value", s.value}, {"origin", s.origin}};
  const auto text = [](const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  std::map<std::string, std::string> record = {{"config", text(config_in_force(run))},
                                               {"eval", text(what_was_asked(run, op))},
                                               {"ran", text(what_ran(run))},
                                               {"switches", text(set)}};
  if (run.backends.sdpa_audit) record["sdpa_calls"] = text(sdpa_calls(run));
  return record;
}

std::vector<std::string> warnings_of(const Evaluation& run) {
  std::vector<std::string> warnings;
  for (const nsa::RanBackend& row : run.record->rows())
    if (!row.reason.empty())
      warnings.push_back(row.stage + ": " + row.requested + " was asked for, " + row.backend +
                         " ran: " + row.reason);
  if (run.dropped_ids > 0)
    warnings.push_back("block_idx: " + std::to_string(run.dropped_ids) +
                       " ids lie outside 0..floor(t/l') and were ignored");
  if (run.unordered_ids > 0)
    warnings.push_back("block_idx: " + std::to_string(run.unordered_ids) +
                       " ids do not ascend and were ignored: --op ranges converts a row in its "
                       "order; every other op takes it as a set");
  return warnings;
}

}  // namespace suites::eval
