#pragma once
#include <memory>

#include "harness/cli/options.h"
#include "harness/engine/observer.h"

namespace harness::cli {

/// What the user sees while a run goes on: on a terminal one line that is rewritten, with a bar and
/// the time left; in a log one line an event; with --quiet or --json nothing. Writes to standard
/// error, so that standard output holds the result.
std::unique_ptr<Observer> make_progress(const Options& options);

}  // namespace harness::cli
