#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "harness/ingest/ingest.h"
#include "harness/protocol/lines.h"

namespace harness {

/// Runs an ingestion into a scratch file and reads the evidence back.
struct Ingested {
  IngestVerdict verdict;
  protocol::Transcript transcript;
};

template <class Function>
Ingested ingest_with(Function function, std::string_view text,
                     const std::vector<std::string>& planned) {
  const auto path =
      std::filesystem::temp_directory_path() / ("ingest_" + std::to_string(::getpid()));
  std::filesystem::remove(path);
  Ingested result;
  {
    protocol::Emitter emitter(path);
    result.verdict = function(
        text, planned, {.hello = {.program = "p", .build_id = "b"}, .cases = {"c"}}, emitter);
  }
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  result.transcript = protocol::read_transcript(content.str(), {.mode = "time", .cases = {"c"}});
  std::filesystem::remove(path);
  return result;
}

}  // namespace harness
