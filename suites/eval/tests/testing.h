#pragma once
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "suites/eval/evaluate.h"
#include "suites/reference_cases/case.h"

namespace suites::eval {

/// cfg of a small layer: Hq 6, Hkv 2, dk 8, dv 6, l 8, d 4, lsel 16, n 4, w 12.
nlohmann::json small_cfg();

/// A file of a kind with standard-normal inputs that fit cfg: [B, S, ...], or packed when
/// `cu_seqlens` is given (B must be 1). Gate logits or gates by cfg.gate, one row for each query
/// head or, with `shared_gates`, for each KV head; weights by cfg.phi; d_o.
struct RandomFile {
  nlohmann::json cfg = small_cfg();
  std::string kind = "forward";
  int64_t B = 2, S = 40;
  std::vector<int64_t> cu_seqlens, prefill;
  bool shared_gates = false;
  unsigned seed = 1;

  TensorFile make() const;
};

/// `expected.NAME` for everything that the oracle makes of the file's inputs; gradients when asked.
std::map<std::string, FileTensor> oracle_outputs(const TensorFile& file, bool gradients);

/// Expects every expected tensor among the outputs, in fp64 to 1e-12 and bit for bit in integers,
/// but those named in `not_made`. Returns how many were compared.
int expect_agreement(const TensorFile& outputs, const std::map<std::string, FileTensor>& expected,
                     const std::set<std::string>& not_made);

/// The text of the error that an evaluation throws, "" when it throws none.
std::string error_of(const TensorFile& file, const EvalOptions& options,
                     const std::string& overriding = "");

/// A copy of the file in which stage values are inputs: NAME holds expected.NAME.
TensorFile on_expected(TensorFile file, const std::map<std::string, FileTensor>& expected,
                       const std::set<std::string>& names);

/// A tensor of zeros.
FileTensor zeros(const std::vector<int64_t>& shape, Dtype dtype = Dtype::kF64);

/// A small random file, changed by each test, in one thread.
class Eval : public ::testing::Test {
 protected:
  Eval() { at::set_num_threads(1); }

  /// The error of the small random file after a change.
  std::string error(const std::function<void(TensorFile&, EvalOptions&)>& change) {
    TensorFile changed = file;
    EvalOptions options;
    change(changed, options);
    return error_of(changed, options);
  }
  std::string config_error(const std::function<void(nlohmann::json&)>& change) {
    return error([&](TensorFile& f, EvalOptions&) { set_config(f, change); });
  }
  static void set_config(TensorFile& f, const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json config = nlohmann::json::parse(f.metadata["config"]);
    change(config);
    f.metadata["config"] = config.dump();
  }

  RandomFile random;
  TensorFile file = random.make();
};

}  // namespace suites::eval
