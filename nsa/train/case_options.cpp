#include "nsa/train/case_options.h"

#include "nsa/program/input_error.h"

namespace nsa::train {

base::protocol::CaseIn read_request(std::istream& stream) {
  try {
    return base::protocol::read_case(stream);
  } catch (const base::protocol::Error& error) {
    throw InputError(std::string("worker request: ") + error.what());
  }
}

TrainOptions options_of_case(const base::protocol::CaseIn& request,
                             const base::protocol::CaseArgs& one) {
  TrainOptions options;
  options.device = request.device;
  options.seed = static_cast<uint64_t>(request.seed);
  options.timed = request.mode == "time";
  apply_args(request.args, "args of phase " + request.phase, options);
  apply_args(one.args, "args of case " + one.id, options);
  options.validate();
  return options;
}

}  // namespace nsa::train
