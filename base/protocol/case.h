#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/depth.h"
#include "base/json/strict_parse.h"
#include "base/protocol/json.h"

namespace base::protocol {

/// One unit of work, reported by name.
struct CaseArgs {
  std::string id = "";
  nlohmann::json args = nlohmann::json::object();  ///< override those of the phase
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "unique in the phase", .required = true}, &CaseArgs::id);
    v({.name = "args", .doc = "override the phase's args"}, &CaseArgs::args);
  }
};

/// What a worker gets on standard input: everything one process (one group) is to do.
struct CaseIn {
  int64_t v = 1;
  std::string phase = "", kind = "", group = "";
  std::string mode = "check";  ///< check | time | profile | trace
  std::string device = "cpu";  ///< cpu | cuda
  int64_t seed = 0;            ///< differs per group
  nlohmann::json args = nlohmann::json::object();
  std::vector<CaseArgs> cases = {};
  std::map<std::string, std::string> switches =
      {};                ///< NSA_* that the runbook sets (also in the environment)
  std::string out = "";  ///< folder for artifacts; it exists
  template <class V>
  static void describe(V& visit) {
    visit({.name = "v", .doc = "protocol version, 1", .required = true}, &CaseIn::v);
    visit({.name = "phase", .doc = "phase id", .required = true}, &CaseIn::phase);
    visit({.name = "kind", .doc = "phase kind", .required = true}, &CaseIn::kind);
    visit({.name = "group", .doc = "g01, g02, ...", .required = true}, &CaseIn::group);
    visit({.name = "mode", .doc = "check, time, profile or trace", .required = true},
          &CaseIn::mode);
    visit({.name = "device", .doc = "cpu or cuda", .required = true}, &CaseIn::device);
    visit({.name = "seed", .doc = "seed of this process", .required = true}, &CaseIn::seed);
    visit({.name = "args", .doc = "arguments of the phase", .required = true}, &CaseIn::args);
    visit({.name = "cases", .doc = "cases to run, in order", .required = true}, &CaseIn::cases);
    visit({.name = "switches", .doc = "NSA_* set by the runbook"}, &CaseIn::switches);
    visit({.name = "out", .doc = "folder for artifacts", .required = true}, &CaseIn::out);
  }
};

/// The line of a case, without the newline.
inline std::string print_case(const CaseIn& in) { return print_line(to_object(in)); }

/// Reads such a line. Throws Error naming the field when it is not one, has no case or another
/// protocol version.
inline CaseIn parse_case(const std::string& line) {
  nlohmann::json object;
  try {
    object = parse_strict(line, static_cast<int>(kMaxDepth));
  } catch (const StrictJsonError& error) {
    throw Error("case line on standard input: " + text_of(error));
  }
  if (object.is_object() && object.contains("v") && object["v"] != 1)
    throw Error("v must be 1, got " + detail::shown(object["v"]) + "; engine and worker differ");
  CaseIn in = from_object<CaseIn>(object);
  if (in.cases.empty()) throw Error("cases must not be empty");
  constexpr std::array<std::string_view, 4> kModes = {"check", "time", "profile", "trace"};
  if (std::find(kModes.begin(), kModes.end(), in.mode) == kModes.end())
    throw Error("mode must be check, time, profile or trace, got " + detail::shown(in.mode));
  return in;
}

/// Reads the case line from a stream (a worker passes std::cin).
inline CaseIn read_case(std::istream& stream) {
  std::string line;
  if (!std::getline(stream, line)) throw Error("no case line on standard input");
  return parse_case(line);
}

/// The arguments of one case: those of the phase, overridden by its own.
inline nlohmann::json merged_args(const CaseIn& in, const CaseArgs& one) {
  nlohmann::json args = in.args;
  args.update(one.args);
  return args;
}

}  // namespace base::protocol
