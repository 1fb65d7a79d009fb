#pragma once
#include <functional>
#include <memory>
#include <string>

#include "harness/cli/options.h"
#include "harness/cli/time_left.h"
#include "harness/engine/observer.h"

namespace harness::cli {

/// Where progress is shown.
struct Screen {
  bool terminal = false;            ///< a line may be rewritten
  bool colour = false;              ///< a terminal, and NO_COLOR is not set
  std::function<size_t()> columns;  ///< asked before each line: windows change their width
  std::function<void(const std::string&)> write;
  std::function<double()> seconds;  ///< a clock that only goes forward
};

/// Standard error as it is: a terminal unless TERM is "dumb" or it is redirected.
Screen standard_error();

/// What the user sees while a run goes on: on a terminal one line that is rewritten, with a bar,
/// the time left of the phase and of the run; in a log one line an event; with --quiet or --json
/// nothing. Not on standard output, which holds the result.
std::unique_ptr<Observer> make_progress(const Options& options, TimeLeft clock,
                                        Screen screen = standard_error());

}  // namespace harness::cli
