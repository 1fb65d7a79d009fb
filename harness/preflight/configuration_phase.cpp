// Settings as they are, beside those that were declared: switches of a phase's programs, and the
// arguments of training phases beside those of a run that is compared with.
#include <cstdlib>

#include "harness/phases/builtin_phases.h"
#include "harness/preflight/switches.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"
#include "harness/training_analysis/run_so_far.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : canonical_dump(value);
}

class ConfigurationPhase {
 public:
  ConfigurationPhase(const fs::path& bin_dir, const BuiltinCall& call,
                     base::protocol::Emitter& emitter)
      : bin_dir_(bin_dir),
        id_(call.in.cases.front().id),
        args_(base::protocol::merged_args(call.in, call.in.cases.front())),
        run_(run_so_far(call.run_dir)),
        emitter_(emitter) {}

  /// Throws Error when a phase or a worker does not answer.
  void run() {
    for (const json& name : args_.at("of")) phases_.push_back(&named_phase(text_of(name)));
    if (phases_.empty()) throw Error("args.of must name a phase");
    switches();
    settings();
    exported();
    emitter_.end_case(id_);
  }

 private:
  const PlannedPhase& named_phase(const std::string& name) const {
    const PlannedPhase* phase = run_.phase(name);
    if (phase == nullptr) throw Error("args.of: no phase '" + name + "' in this runbook");
    return *phase;
  }

  void count(const char* name, int64_t value) {
    emitter_.metric({.case_id = id_, .name = name, .value = value, .unit = "count"});
  }

  static std::string declared_text(const PlannedPhase& phase, const std::string& name) {
    const auto found = phase.switches.find(name);
    return found == phase.switches.end() ? "–" : found->second;
  }

  void switches() {
    const SwitchValues defaults = ask_switches(bin_dir_, {});
    json rows = json::array();
    int64_t known = 0, changed = 0, undeclared = 0;
    for (const PlannedPhase* phase : phases_) {
      const SwitchValues set = ask_switches(bin_dir_, switches_here(phase->switches));
      if (phase == phases_.front()) first_as_set_ = set;
      for (const auto& [name, value] : set) {
        const std::string& standard = defaults.at(name);
        const std::string declared = declared_text(*phase, name);
        const bool as_declared = value == (declared == "–" ? standard : declared);
        ++known;
        changed += value != standard;
        undeclared += !as_declared;
        rows.push_back({phase->id, name, standard, declared, value, as_declared ? "yes" : "no"});
        emitter_.check({.case_id = id_,
                        .id = "switch/" + phase->id + "/" + name,
                        .ok = as_declared,
                        .code = as_declared ? "" : "CONFIG_DRIFT",
                        .detail = as_declared ? ""
                                              : name + " is " + value + " by the environment, " +
                                                    "and no phase declares it"});
      }
    }
    count("switches.known_count", known);
    count("switches.changed_count", changed);
    count("switches.undeclared_count", undeclared);
    emitter_.table({.case_id = id_,
                    .id = "switches",
                    .title = "Switches as set",
                    .columns = {"phase", "switch", "default", "declared", "as set", "as declared"},
                    .rows = rows});
  }

  /// Arguments of the phases; beside them those of the run that the reference figure comes from.
  void settings() {
    const json& reference = args_.at("reference");
    json rows = json::array();
    int64_t differing = 0;
    for (const auto& [name, value] : phases_.front()->args.items()) {
      std::string same = "–";
      if (reference.contains(name)) {
        same = reference.at(name) == value ? "yes" : "no";
        differing += same == "no";
      }
      json row = json::array({name});
      for (const PlannedPhase* phase : phases_)
        row.push_back(phase->args.contains(name) ? text_of(phase->args.at(name)) : "–");
      row.push_back(reference.contains(name) ? text_of(reference.at(name)) : "–");
      row.push_back(same);
      rows.push_back(row);
    }
    for (const auto& [name, value] : reference.items())
      if (!phases_.front()->args.contains(name))
        throw Error("args.reference: " + phases_.front()->id + " has no argument '" + name + "'");
    std::vector<std::string> columns = {"setting"};
    for (const PlannedPhase* phase : phases_) columns.push_back(phase->id);
    columns.emplace_back("reference run");
    columns.emplace_back("the same");
    count("reference.differs_count", differing);
    emitter_.table({.case_id = id_,
                    .id = "settings",
                    .title = "Settings beside those of the reference run (" +
                             args_.value("reference_source", "none named") + ")",
                    .columns = columns,
                    .rows = rows});
  }

  /// What a setting of the historical run is here: of the first phase its switch or its argument,
  /// else a variable of the environment.
  std::string setting_here(const std::string& name) const {
    const auto found = first_as_set_.find(name);
    if (found != first_as_set_.end()) return found->second;
    const json& args = phases_.front()->args;
    if (args.contains(name)) return text_of(args.at(name));
    const char* variable = std::getenv(name.c_str());
    return variable != nullptr ? variable : "not set";
  }

  /// Settings that a historical run exported, one by one: as then, or why not.
  void exported() {
    json rows = json::array();
    int64_t unexplained = 0;
    for (const json& one : args_.value("exported", json::array())) {
      const auto field = [&](const char* key) { return one.value(key, ""); };
      const std::string here = setting_here(field("name"));
      const bool same = here == field("then");
      const bool explained = same || !field("why").empty();
      unexplained += !explained;
      rows.push_back(
          {field("name"), field("then"), here, same ? "yes" : "no", same ? "–" : field("why")});
      emitter_.check({.case_id = id_,
                      .id = "exported/" + field("name"),
                      .ok = explained,
                      .code = explained ? "" : "CONFIG_DRIFT",
                      .detail = explained ? ""
                                          : field("name") + " is " + here + ", it was " +
                                                field("then") + ", and no reason is given"});
    }
    count("exported.listed_count", static_cast<int64_t>(rows.size()));
    count("exported.unexplained_count", unexplained);
    emitter_.table({.case_id = id_,
                    .id = "exported",
                    .title = "Settings that the historical run exported",
                    .columns = {"setting", "then", "here", "the same", "why not"},
                    .rows = rows});
  }

  fs::path bin_dir_;
  std::string id_;
  json args_;
  RunSoFar run_;
  base::protocol::Emitter& emitter_;
  std::vector<const PlannedPhase*> phases_;
  SwitchValues first_as_set_;
};

}  // namespace

void run_configuration(const fs::path& bin_dir, const BuiltinCall& call,
                       base::protocol::Emitter& emitter) {
  ConfigurationPhase(bin_dir, call, emitter).run();
}

}  // namespace harness
