#pragma once
#include <filesystem>
#include <string>

#include "base/protocol/lines.h"
#include "harness/engine/builtin.h"
#include "harness/evidence/storage/files.h"

namespace harness {

/// Runs a builtin outside of any run and reads its lines by the rules of the protocol. They are
/// written to `file`, between a hello and a done of this function.
template <class Run>
base::protocol::Transcript run_alone(const std::filesystem::path& file, const nlohmann::json& args,
                                     Run run, const std::string& device = "cpu") {
  BuiltinCall call;
  call.in.phase = call.in.kind = "builtin";
  call.in.group = "g01";
  call.in.device = device;
  call.in.args = args;
  call.in.cases = {{.id = "all", .args = nlohmann::json::object()}};
  call.run_dir = file.parent_path();
  {
    base::protocol::Emitter emitter(file.string());
    emitter.hello({.program = "engine"});
    run(call, emitter);
    emitter.done();
  }
  return base::protocol::read_transcript(read_bytes(file), {"check", {"all"}});
}

template <class Line, class Wanted>
const Line* find_line(const base::protocol::Transcript& transcript, Wanted wanted) {
  for (const auto& line : transcript.lines)
    if (const auto* found = std::get_if<Line>(&line.message); found != nullptr && wanted(*found))
      return found;
  return nullptr;
}

}  // namespace harness
