#include "suites/bench/arguments.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

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

}  // namespace

uint64_t read_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::invalid_argument("--seed must be a whole number from 0 to 2^64 - 1, got '" + text +
                                "'; leave it out for " + std::to_string(kBenchSeed));
  return seed;
}

MicroArguments take_micro_arguments(int& argc, char** argv) {
  MicroArguments taken;
  int kept = 1;
  for (int i = 1; i < argc;) {
    const Flag device = flag_at(i, argc, argv, "--device"), seed = flag_at(i, argc, argv, "--seed");
    if (device.words > 0) taken.device = device.value;
    if (seed.words > 0) taken.seed = read_seed(seed.value);
    const int words = device.words + seed.words;
    if (words == 0 && !is_flag_of_library(argv[i]))
      throw std::invalid_argument("unknown argument '" + std::string(argv[i]) +
                                  "'; known: the commands of --help, --device, --seed and "
                                  "--benchmark_*");
    if (words == 0) argv[kept++] = argv[i];
    i += std::max(words, 1);
  }
  argc = kept;
  argv[argc] = nullptr;
  return taken;
}

}  // namespace suites
