#include "suites/bench/targets/repeated_bits.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "suites/bench/targets/case_row.h"
#include "suites/bench/targets/target_case.h"
#include "suites/phases/target_call.h"

namespace suites {
namespace {

using nlohmann::json;

/// The bits as integers: NaN equals itself, and 0 does not equal -0.
at::Tensor bits_of(const at::Tensor& x) {
  const at::Tensor whole = x.detach().contiguous();
  switch (whole.element_size()) {
    case 2:
      return whole.view(at::kShort);
    case 4:
      return whole.view(at::kInt);
    case 8:
      return whole.view(at::kLong);
    default:
      TORCH_CHECK(false, "suites::RepeatedBits: type must have 2, 4 or 8 bytes, got ",
                  whole.scalar_type());
  }
}

RepeatedBits repeat_case(const TargetCase& one, at::Device device, int64_t times, uint64_t seed) {
  const TargetCall call(one.config, device, seed);
  at::Tensor d_o;
  RepeatedBits bits;
  for (int64_t i = 0; i < times; ++i) {
    const nsa::NsaOutputs out = call.forward_in_training();
    if (!d_o.defined()) d_o = at::randn_like(out.o);
    std::vector<at::Tensor> all = call.backward(out.o, d_o);
    all.insert(all.end(), {out.o, out.block_idx, out.lse_cmp, out.lse_sel, out.lse_win});
    bits.add(all);
  }
  return bits;
}

}  // namespace

void RepeatedBits::add(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(!tensors.empty(), "suites::RepeatedBits: tensors must be at least 1, got 0");
  if (calls_ == 0) {
    for (const at::Tensor& x : tensors) first_.push_back(x.detach().clone());
    differing_ = at::zeros({}, tensors[0].options().dtype(at::kLong).requires_grad(false));
  }
  TORCH_CHECK(tensors.size() == first_.size(), "suites::RepeatedBits: tensors must be ",
              first_.size(), ", got ", tensors.size());
  at::Tensor any = at::zeros({}, differing_.options().dtype(at::kBool));
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(tensors[i].sizes() == first_[i].sizes() &&
                    tensors[i].scalar_type() == first_[i].scalar_type(),
                "suites::RepeatedBits: tensor ", i, " must be like that of the first call");
    any = any.logical_or(bits_of(tensors[i]).ne(bits_of(first_[i])).any());
  }
  differing_ += any;
  ++calls_;
}

int64_t RepeatedBits::differing() const { return calls_ == 0 ? 0 : differing_.item<int64_t>(); }

int64_t repeat_calls(at::Device device, const std::string& filter, int64_t times, uint64_t seed,
                     std::string& text) {
  int64_t total = 0;
  for (const TargetCase& one : repeated_cases()) {
    if (one.id.find(filter) == std::string::npos) continue;
    const json row = run_case(one.id, one.config, device, [&](json& found) {
      const RepeatedBits bits = repeat_case(one, device, times, seed);
      found["calls"] = bits.calls();
      found["differing"] = bits.differing();
    });
    if (row.at("problems").empty()) {
      const int64_t differing = row.at("differing");
      text += one.id + ": " + row.at("calls").dump() + " calls forward and backward, " +
              std::to_string(differing) + " with other bits than the first\n";
      total += differing;
    } else {
      text += one.id + ": not run: " + row.at("problems").at(0).get<std::string>() + "\n";
      ++total;
    }
  }
  if (text.empty())
    throw std::invalid_argument("--case " + filter + ": no case has that in its name");
  return total;
}

}  // namespace suites
