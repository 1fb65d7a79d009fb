#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/emitter.h"

namespace harness {

/// The origin that the lines record.
struct IngestTarget {
  base::protocol::Hello hello;  ///< program, build id, device, switches
  std::vector<std::string>
      cases;  ///< planned cases of the group: all end like the program as a whole
};

/// Why the output does not count; empty cause: it does. Causes: NO_TESTS, BAD_TEST_COUNT,
/// BAD_TEST_JSON, NON_FINITE.
struct IngestVerdict {
  std::string cause, reason;
};

/// Names in the output of `--gtest_list_tests`: "Suite.Test".
std::vector<std::string> parse_gtest_list(std::string_view listing);

/// Names in the output of `--benchmark_list_tests`: one a line.
std::vector<std::string> parse_benchmark_list(std::string_view listing);

/// Writes the evidence of a GoogleTest run (`--gtest_output=json:...`): one check a test, then the
/// case lines and `done`. A skipped or disabled test is a failed check: it did not pass. Without
/// tests, or when those in the JSON are not those `planned`, nothing is written and the verdict
/// has the reason.
IngestVerdict ingest_gtest(std::string_view text, const std::vector<std::string>& planned,
                           const IngestTarget& target, base::protocol::Emitter& emitter);

/// The same for Google Benchmark (`--benchmark_out_format=json`): one sample a repetition (series:
/// the benchmark's name; unit ms, us or s), one check a benchmark. A skipped benchmark is a failed
/// check. A time or a number of iterations that is missing or not above 0 is refused by name; NaN
/// and Infinity, which Google Benchmark may print, are NON_FINITE there.
IngestVerdict ingest_benchmark(std::string_view text, const std::vector<std::string>& planned,
                               const IngestTarget& target, base::protocol::Emitter& emitter);

}  // namespace harness
