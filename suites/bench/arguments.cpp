#include "suites/bench/arguments.h"

#include <algorithm>
#include <stdexcept>

#include "base/options/whole_number.h"

namespace suites {
namespace {

/// Value of the flag `name` at argv[at], and how many words it takes; 0 words: another argument.
struct Flag {
  std::string value;
  int words = 0;
};

Flag flag_at(int at, int argc, char** argv, const std::string& name) {
  const std::string word = argv[at];
  if (word.starts_with(name + "=")) return {word.substr(name.size() + 1), 1};
  if (word != name) return {};
  if (at + 1 == argc) throw std::invalid_argument(name + " needs a value behind it");
  return {argv[at + 1], 2};
}

bool is_flag_of_library(const std::string& word) {
  for (const char c : word)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  return word.starts_with("--benchmark_") || word.starts_with("--v=");
}

/// Takes the option at argv[at], if it is one of the microbenchmarks.
struct Taker {
  BenchOptions& options;
  int at, argc;
  char** argv;
  int words = 0;           ///< of argv that were taken
  std::string known = {};  ///< flags of all options

  template <class T>
  void operator()(const base::OptionDoc& option, T BenchOptions::* member) {
    if (!base::takes(kMicrobenchmarks, option)) return;
    const std::string name = base::flag_of(option);
    known += name + ", ";
    const Flag flag = flag_at(at, argc, argv, name);
    if (flag.words == 0) return;
    words = flag.words;
    put(name, flag.value, options.*member);
  }

  static void put(const std::string&, const std::string& text, std::string& value) { value = text; }
  static void put(const std::string& name, const std::string& text, uint64_t& value) {
    value = base::read_whole_number(name, text, kBenchSeed);
  }
  /// No option of the microbenchmarks is of another type.
  template <class T>
  static void put(const std::string& name, const std::string&, T&) {
    throw std::logic_error(name + " has a type that microbenchmarks do not read");
  }
};

}  // namespace

BenchOptions take_micro_arguments(int& argc, char** argv) {
  BenchOptions taken;
  taken.device = "cpu";
  int kept = 1;
  for (int i = 1; i < argc;) {
    Taker taker{.options = taken, .at = i, .argc = argc, .argv = argv};
    BenchOptions::describe(taker);
    if (taker.words == 0 && !is_flag_of_library(argv[i]))
      throw std::invalid_argument("unknown argument '" + std::string(argv[i]) +
                                  "'; known: the commands of --help, " + taker.known +
                                  "and --benchmark_*");
    if (taker.words == 0) argv[kept++] = argv[i];
    i += std::max(taker.words, 1);
  }
  argc = kept;
  argv[argc] = nullptr;
  return taken;
}

}  // namespace suites
