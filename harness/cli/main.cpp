#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

#include "base/text/plain_text.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/options.h"
#include "harness/cli/paths.h"
#include "harness/evidence/error.h"
#include "harness/schema/error.h"

namespace {

using harness::cli::Options;

int execute(const Options& options) {
  for (const harness::cli::Command& command : harness::cli::commands())
    if (options.command == command.name) return command.run(options);
  throw harness::Error("no command is called " + options.command);
}

/// Errors may quote texts of users and files.
int failed(const std::exception& error, int exit_code) {
  std::fprintf(stderr, "nsa-validate: %s\n", base::plain_text(error.what()).c_str());
  return exit_code;
}

/// Output that could not be written, as on a full disk, is a fault.
int reported(int exit_code) {
  std::cout.flush();
  const bool written = std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return written ? exit_code
                 : failed(harness::Error(std::string("cannot write standard output: ") +
                                         std::strerror(errno)),
                          exit_code == 0 ? 3 : exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may grow no further is an error with a name
  Options options;
  int exit_code = 0;
  if (!harness::cli::parse_options(argc, argv, options, exit_code)) return reported(exit_code);
  try {
    harness::cli::require_working_directory();
    return reported(execute(options));
  } catch (const harness::ConfigError& e) {
    return failed(e, 2);
  } catch (const harness::EvidenceError& e) {
    return failed(e, 6);
  } catch (const std::exception& e) {
    return failed(e, 3);
  }
}
