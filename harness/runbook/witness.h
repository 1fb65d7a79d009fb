#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/runbook/load.h"

/// How each criterion of a shipped runbook was seen to fail: configs/witnesses/KIND.json.
namespace harness {

/// A cause that moves figures of a kind to the wrong side of their criteria. Exactly one of `args`,
/// `test` and `recorded` is where it was seen.
struct Witness {
  std::vector<std::string> metrics;             ///< figures of the kind that it moves
  std::string family;                           ///< glob of further figures that are computed alike
  std::string op;                               ///< only criteria with this operator; empty: all
  nlohmann::json value;                         ///< only criteria with this threshold; null: all
  std::string cause;                            ///< what is injected, in words
  nlohmann::json args;                          ///< of a small phase, its `fault` included
  std::map<std::string, std::string> switches;  ///< of that phase
  std::string filter;                           ///< nsa-tests: its filter
  int64_t processes = 1;
  std::string device = "cpu";  ///< cpu | cuda: where that phase can be run
  std::string test;            ///< "Suite.Name" of the test that injects it
  std::string recorded;        ///< "SAMPLE C-ID": the run in reports/samples where it failed
  template <class V>
  static void describe(V& v) {
    v({.name = "metrics", .doc = "figures of the kind that it moves", .required = true},
      &Witness::metrics);
    v({.name = "family", .doc = "glob of further figures that are computed alike"},
      &Witness::family);
    v({.name = "op", .doc = "only criteria with this operator; empty: all"}, &Witness::op);
    v({.name = "value", .doc = "only criteria with this threshold; null: all"}, &Witness::value);
    v({.name = "cause", .doc = "what is injected, in words", .required = true}, &Witness::cause);
    v({.name = "args", .doc = "of a small phase that is run, its `fault` included"},
      &Witness::args);
    v({.name = "switches", .doc = "NSA_* switches of that phase"}, &Witness::switches);
    v({.name = "filter", .doc = "of nsa-tests"}, &Witness::filter);
    v({.name = "processes", .doc = "of that phase", .unit = "count"}, &Witness::processes);
    v({.name = "device", .doc = "cpu or cuda: where that phase can be run"}, &Witness::device);
    v({.name = "test", .doc = "Suite.Name of the test that injects it"}, &Witness::test);
    v({.name = "recorded", .doc = "SAMPLE C-ID: the run in reports/samples where it failed"},
      &Witness::recorded);
  }
};

struct KindWitnesses {
  std::string kind;
  std::vector<Witness> witnesses;
  template <class V>
  static void describe(V& v) {
    v({.name = "kind", .doc = "phase kind, equal to the file's name", .required = true},
      &KindWitnesses::kind);
    v({.name = "witnesses",
       .doc = "causes that move its figures to the wrong side of their criteria",
       .required = true},
      &KindWitnesses::witnesses);
  }
};

/// Every configs/witnesses/KIND.json, by kind. Throws ConfigError for an unknown kind or figure
/// (nearest name), and for a witness without exactly one place where it was seen.
std::map<std::string, std::vector<Witness>> load_witnesses(const std::filesystem::path& configs_dir,
                                                           const Kinds& kinds);

/// A criterion of a shipped runbook.
struct ShippedCriterion {
  std::string runbook;
  std::string kind;    ///< of the phase that measures its figure
  std::string metric;  ///< the figure, without the phase
  std::string device;
  CriterionSpec spec;
};

/// Every criterion of every runbook below `configs_dir`.
std::vector<ShippedCriterion> shipped_criteria(const std::filesystem::path& configs_dir,
                                               const Kinds& kinds);

/// Whether `witness`, of the criterion's kind, is one of this criterion.
bool applies(const Witness& witness, const ShippedCriterion& criterion);

/// A runbook, named `name`, with one phase for each witness that is run on `device`, judged by the
/// shipped criteria that it applies to: in its run each of them must FAIL.
nlohmann::json witness_runbook(const std::string& name, const std::string& device,
                               const std::map<std::string, std::vector<Witness>>& witnesses,
                               const std::vector<ShippedCriterion>& criteria, const Kinds& kinds);

}  // namespace harness
