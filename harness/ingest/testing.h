#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/protocol/lines.h"
#include "harness/ingest/ingest.h"

namespace harness {

/// Runs an ingestion into a scratch file and reads the evidence back.
struct Ingested {
  IngestVerdict verdict;
  base::protocol::Transcript transcript;
};

template <class Function>
Ingested ingest_with(Function function, std::string_view text,
                     const std::vector<std::string>& planned) {
  const auto path =
      std::filesystem::temp_directory_path() / ("ingest_" + std::to_string(::getpid()));
  std::filesystem::remove(path);
  Ingested result;
  {
    base::protocol::Emitter emitter(path);
    result.verdict = function(
        text, planned, {.hello = {.program = "p", .build_id = "b"}, .cases = {"c"}}, emitter);
  }
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  result.transcript =
      base::protocol::read_transcript(content.str(), {.mode = "time", .cases = {"c"}});
  std::filesystem::remove(path);
  return result;
}

}  // namespace harness
