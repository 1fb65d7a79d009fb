// nsa-tests: conformance of nsa/ with the oracle. GoogleTest flags, and before them:
//   --device cpu|cuda|cuda:N   where candidates run (default cpu); the list of tests is the same
//   --seed N                   seed of configurations and data (default 20250216), printed
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cstring>
#include <iostream>

#include "base/text/plain_text.h"
#include "nsa/backend/kernel_code.h"
#include "nsa/diagnostics/stack_dump.h"
#include "nsa/program/quick_exit.h"
#include "nsa/program/working_directory.h"
#include "nsa/switches/switches.h"
#include "suites/conformance/settings.h"
#include "suites/instrument/facts.h"

namespace suites {
namespace {

/// Takes "--name value" or "--name=value" out of argv; empty when it is not there.
std::string take_flag(int& argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const bool joined = text.rfind(name + "=", 0) == 0, apart = text == name;
    if (!joined && !apart) continue;
    TORCH_CHECK(joined || i + 1 < argc, "nsa-tests: ", name, " needs a value");
    const std::string value = joined ? text.substr(name.size() + 1) : argv[i + 1];
    const int used = joined ? 1 : 2;
    for (int k = i; k + used <= argc; ++k) argv[k] = argv[k + used];
    argc -= used;
    return value;
  }
  return "";
}

void read_flags(int& argc, char** argv) {
  TestSettings& settings = test_settings();
  const std::string device = take_flag(argc, argv, "--device"),
                    seed = take_flag(argc, argv, "--seed");
  if (!device.empty()) settings.device = parse_device(device);
  if (!seed.empty()) {
    const auto [end, error] =
        std::from_chars(seed.data(), seed.data() + seed.size(), settings.seed);
    TORCH_CHECK(error == std::errc() && end == seed.data() + seed.size(),
                "nsa-tests: --seed must be a number >= 0, got '", seed, "'");
  }
}

}  // namespace
}  // namespace suites

constexpr const char* kHelp =
    R"(Usage: nsa-tests [--device cpu|cuda|cuda:N] [--seed N] [--gtest_...]
Operators, gradients and invariants of nsa/ against the fp64 oracle.
  --device   where candidates run (default cpu); the list of tests is the same everywhere
  --seed     of configurations and data; printed, so that a failure can be repeated
  --gtest_filter=PATTERN, --gtest_list_tests, --gtest_output=json:FILE and GoogleTest's other flags
Exit codes: 0 every test passed, 1 one did not, 2 usage, or no test matches.
Examples:
  nsa-tests                                        everything on the CPU
  nsa-tests --device cuda --gtest_filter=*bf16*    one type on a GPU
  NSA_KERNELS=sm80 nsa-tests --device cuda         the code of compute capability 8.0, on any GPU
  nsa-tests --seed 7 --gtest_filter=*/varlen_*     one backend, other data
)";

int main(int argc, char** argv) {
  if (argc > 1 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::cout << kHelp << std::flush;
    return 0;
  }
  nsa::install_stack_dump();
  try {
    suites::read_flags(argc, argv);
    nsa::want_kernels(nsa::SwitchSet::from_environment().get_text("NSA_KERNELS"),
                      suites::test_settings().device);
  } catch (const c10::Error& error) {
    std::cerr << base::plain_text(error.what_without_backtrace()) << "\n";
    return 2;
  } catch (const std::invalid_argument& error) {
    std::cerr << "nsa-tests: " << base::plain_text(error.what()) << "\n";
    return 2;
  }
  at::set_num_threads(1);  // tensors are tiny: a second thread costs more than it gives
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) {
    std::cerr << "nsa-tests: unknown argument '" << base::plain_text(argv[1])
              << "'; known: --device, --seed and --gtest_*\n";
    return 2;
  }
  if (!testing::GTEST_FLAG(list_tests))
    std::cout << "nsa-tests: device " << suites::test_settings().device << " ("
              << suites::device_name(suites::test_settings().device) << "), seed "
              << suites::test_settings().seed << std::endl;
  const int status = RUN_ALL_TESTS();
  const testing::UnitTest& unit = *testing::UnitTest::GetInstance();
  if (testing::GTEST_FLAG(list_tests)) return status;
  if (unit.test_to_run_count() == 0) {
    std::cerr << "nsa-tests: no test matches --gtest_filter=" << testing::GTEST_FLAG(filter)
              << "\n";
    return 2;
  }
  if (suites::test_settings().device.is_cpu())
    std::cout << "nsa-tests: not run on a GPU: " << unit.test_to_run_count()
              << " tests (--device cuda runs the same ones there)" << std::endl;
  return status;
}
