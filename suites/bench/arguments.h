#pragma once
#include <cstdint>
#include <string>

#include "base/options/option.h"

namespace suites {

inline constexpr uint64_t kBenchSeed = 20250216;

/// The command of a command line without one.
inline constexpr const char* kMicrobenchmarks = "microbenchmarks";

/// What the commands of nsa-bench and its microbenchmarks take.
struct BenchOptions {
  std::string device;
  std::string filter;
  uint64_t seed = kBenchSeed;
  std::string out;
  double seconds = 1;
  bool no_dense = false;
  int64_t times = 1000;
  int64_t pairs = 10;
  bool resume = false;
  std::string before, after;
  bool markdown = false;
  std::string samples = "reports/samples/bench";

  /// The only description of the options: both command lines and the help follow from it.
  template <class Visitor>
  static void describe(Visitor& v);
};

/// Takes the options of the microbenchmarks ("--seed 7", "--seed=7") out of argv, which keeps the
/// flags of Google Benchmark. Throws std::invalid_argument for everything else: that library would
/// print it as it is.
BenchOptions take_micro_arguments(int& argc, char** argv);

template <class Visitor>
void BenchOptions::describe(Visitor& v) {
  using O = BenchOptions;
  constexpr const char* kOfCases = "targets|scaling|decode|launches|msa|repeat|overhead|users";
  constexpr const char* kOfTimes = "targets|scaling|decode|cpu|msa|roofline|overhead|users";
  constexpr const char* kOfPasses = "targets|scaling|msa";
  v({.name = "device", .doc = "cpu, cuda or cuda:N", .commands = kMicrobenchmarks}, &O::device);
  v({.name = "device",
     .doc = "cuda or cuda:N (cpu: correctness only makes sense)",
     .commands = kOfCases},
    &O::device);
  v({.name = "case",
     .doc = "only cases whose id contains this",
     .commands = "targets|scaling|decode|launches|msa|repeat|cpu|roofline|overhead|users"},
    &O::filter);
  v({.name = "seed",
     .doc = "of the data",
     .commands =
         "targets|scaling|decode|launches|msa|repeat|cpu|roofline|overhead|users|microbenchmarks"},
    &O::seed);
  v({.name = "pairs",
     .doc = "of calls, the operator's and the library's dense attention alternately; roofline: "
            "calls of a stage",
     .least = 1,
     .most = 1000,
     .commands = "cpu|roofline"},
    &O::pairs);
  v({.name = "resume",
     .doc = "go on with the report of --out: its cases stay, and count up to --pairs",
     .commands = "cpu"},
    &O::resume);
  v({.name = "out", .doc = "JSON with every sample", .commands = kOfTimes}, &O::out);
  v({.name = "seconds",
     .doc = "of hot samples a pass, at least 20 of them",
     .above = 0,
     .commands = "targets|scaling|msa|users"},
    &O::seconds);
  v({.name = "no_dense", .doc = "leave out the library's dense attention", .commands = kOfPasses},
    &O::no_dense);
  v({.name = "times", .doc = "calls", .least = 2, .most = 1 << 30, .commands = "repeat"},
    &O::times);
  v({.name = "OLD",
     .doc = "JSON of the older run",
     .required = true,
     .positional = true,
     .commands = "compare"},
    &O::before);
  v({.name = "NEW",
     .doc = "JSON of the newer run",
     .required = true,
     .positional = true,
     .commands = "compare"},
    &O::after);
  v({.name = "markdown",
     .doc = "tables of Markdown, as in docs/coverage.md",
     .commands = "coverage"},
    &O::markdown);
  v({.name = "samples", .doc = "folder of recorded reports", .commands = "coverage"}, &O::samples);
}

}  // namespace suites
