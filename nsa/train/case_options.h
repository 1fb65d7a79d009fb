#pragma once
#include <istream>

#include "base/protocol/case.h"
#include "nsa/train/train_options.h"

namespace nsa::train {

/// Reads what one process is to do (base/protocol/README.md, "In"). Throws InputError.
base::protocol::CaseIn read_request(std::istream& stream);

/// Options of one case: defaults, then the args of the phase, then its own. Throws InputError for
/// what apply_args rejects.
TrainOptions options_of_case(const base::protocol::CaseIn& request,
                             const base::protocol::CaseArgs& one);

}  // namespace nsa::train
