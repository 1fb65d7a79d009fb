#pragma once
#include "nsa/train/record/judge.h"

namespace nsa::train {

/// BUCKET_MISMATCH (P22): the buckets that were sent are not those of the requested cap. A bucket
/// is closed by the parameter that takes it to the cap; the first one may be closed at 1 MiB, the
/// last one is what was left. So the others hold the cap at least, and less than the cap and the
/// largest parameter together.
Check check_buckets(const ReducerOptions& request, const RunFacts& facts);

}  // namespace nsa::train
