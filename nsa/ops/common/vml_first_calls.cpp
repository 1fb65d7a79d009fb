// The first call of a VML function finds the kernel that fits this CPU and the accuracy asked for.
// In the oneMKL of LibTorch's wheels, two threads that make it at once may get the one of lowest
// accuracy, for that call alone (pytorch/pytorch issue 188792): exp of a large tensor, first thing
// in a process, was wrong by 1e-9 in its second half, once in about 60 starts of nsa-eval. So each
// function that ATen hands to VML is called here on one value, by one thread, when the library is
// loaded.
#include <ATen/ATen.h>

namespace nsa {
namespace {

bool call_each_once() {
  using Function = at::Tensor (*)(const at::Tensor&);
  constexpr Function kFunctions[] = {at::acos, at::asin,   at::atan, at::cos,   at::erf,  at::erfc,
                                     at::exp,  at::erfinv, at::log,  at::log10, at::log2, at::sin,
                                     at::sqrt, at::tan,    at::tanh, at::trunc};
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::full({1}, 0.5, at::TensorOptions(type));
    for (const Function function : kFunctions) function(x);
  }
  return true;
}

const bool called = call_each_once();

}  // namespace
}  // namespace nsa
