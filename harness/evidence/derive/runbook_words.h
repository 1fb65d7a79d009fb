#pragma once
#include "harness/results/results.h"
#include "harness/runbook/runbook.h"

namespace harness {

/// Sentences, questions and next steps of `runbook` for `results`: criteria by their whole ids
/// where the runbook has "C-x.*", and its name in commands.
void add_runbook_words(const Runbook& runbook, Results& results);

}  // namespace harness
