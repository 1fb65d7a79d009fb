#pragma once
#include <filesystem>
#include <fstream>
#include <string>

#include "harness/engine/builtin.h"
#include "harness/evidence/files.h"
#include "harness/protocol/lines.h"

namespace harness {

/// A shell script in the place of nsa-worker for the tests of this room: says switches, knows one
/// misspelt switch, and fails a check when a fault is asked for (and, with `blind`, does not).
inline void write_fake_worker(const std::filesystem::path& bin_dir, bool blind = false,
                              bool alarmed = false) {
  std::filesystem::create_directories(bin_dir);
  const std::string path = (bin_dir / "nsa-worker").string();
  std::ofstream(path) << R"(#!/bin/sh
read line
if [ -n "$NSA_SEL_RANGES_V3" ]; then
  echo "CONFIG_ERROR: unknown switch NSA_SEL_RANGES_V3; did you mean NSA_SEL_RANGES_V2?" >&2; exit 2
fi
ok=)" << (alarmed ? "false" : "true")
                      << R"(
case "$line" in *fault*) ok=)"
                      << (blind ? "true" : "false") << R"(;; esac
cat > "$2" <<END
{"type":"hello","t":0,"v":1,"program":"fake","build_id":"","pid":1,"rank":0,"world":1,"device":"cpu","switches":[{"name":"NSA_SEL_RANGES_V2","value":"0","origin":"default"}]}
{"type":"check","t":0,"case":"planted","id":"invariant/future","ok":$ok,"code":"CAUSALITY_LEAK","detail":"win, position 5"}
{"type":"case","t":0,"case":"planted","status":"ok","reason":""}
{"type":"done","t":0,"lines":3}
END
)";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

/// What a builtin said, read by the rules of the protocol. The engine says hello and done.
template <class Run>
protocol::Transcript run_builtin(const std::filesystem::path& file, const nlohmann::json& args,
                                 Run run) {
  BuiltinCall call;
  call.in.phase = call.in.kind = "builtin";
  call.in.group = "g01";
  call.in.args = args;
  call.in.cases = {{.id = "all", .args = nlohmann::json::object()}};
  {
    protocol::Emitter emitter(file.string());
    emitter.hello({.program = "engine"});
    run(call, emitter);
    emitter.done();
  }
  return protocol::read_transcript(read_bytes(file), {"check", {"all"}});
}

template <class Line, class Wanted>
const Line* find_line(const protocol::Transcript& transcript, Wanted wanted) {
  for (const auto& line : transcript.lines)
    if (const auto* found = std::get_if<Line>(&line.message); found != nullptr && wanted(*found))
      return found;
  return nullptr;
}

}  // namespace harness
