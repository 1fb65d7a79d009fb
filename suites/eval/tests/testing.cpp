#include "suites/eval/tests/testing.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "suites/reference_cases/agreement.h"

namespace suites::eval {
namespace {

namespace ref = nsa::reference;
using nlohmann::json;

FileTensor of(const ref::Tensor<double>& tensor) {
  return from_doubles(tensor.shape(), tensor.values(), Dtype::kF64);
}
FileTensor of(const ref::Tensor<int32_t>& tensor) {
  return from_integers(tensor.shape(), {tensor.values().begin(), tensor.values().end()},
                       Dtype::kI32);
}
FileTensor of(const ref::Tensor<int64_t>& tensor) {
  return from_integers(tensor.shape(), tensor.values(), Dtype::kI64);
}

void add_phi_gradients(const std::string& side, const ref::PhiWeights& d,
                       std::map<std::string, FileTensor>& all) {
  const std::string mlp = "d_phi_" + side + ".";
  if (d.conv.defined()) all["d_conv_" + side] = of(d.conv);
  if (!d.pe.defined()) return;
  all[mlp + "pe"] = of(d.pe);
  all[mlp + "w1"] = of(d.w1);
  all[mlp + "b1"] = of(d.b1);
  all[mlp + "w2"] = of(d.w2);
  all[mlp + "b2"] = of(d.b2);
}

void add_gradients(const ReferenceCase& c, std::map<std::string, FileTensor>& all) {
  const ref::Inputs d = c.kind == "varlen"
                            ? ref::backward_varlen(c.config, c.inputs, c.cu_seqlens, c.d_o)
                            : ref::backward(c.config, c.inputs, c.d_o);
  all["d_q"] = of(d.q);
  all["d_k_cmp_src"] = of(d.k_cmp_src);
  all["d_v_cmp_src"] = of(d.v_cmp_src);
  all["d_k_sel"] = of(d.k_sel);
  all["d_v_sel"] = of(d.v_sel);
  all["d_k_win"] = of(d.k_win);
  all["d_v_win"] = of(d.v_win);
  all[c.config.gate == ref::Gate::kNone ? "d_gates" : "d_gate_logits"] = of(d.gates);
  add_phi_gradients("k", d.phi_k, all);
  add_phi_gradients("v", d.phi_v, all);
}

ref::Outputs run_oracle(const ReferenceCase& c, std::map<std::string, FileTensor>& all) {
  if (c.kind == "decode") return ref::decode(c.config, c.inputs, c.prefill);
  if (c.kind != "varlen") return ref::forward(c.config, c.inputs);
  const ref::VarlenOutputs out = ref::forward_varlen(c.config, c.inputs, c.cu_seqlens);
  all["cu_cmp"] = of(ref::Tensor<int32_t>({static_cast<int64_t>(out.cu_cmp.size())}, out.cu_cmp));
  return out;
}

template <class T>
ref::Tensor<T> as(const FileTensor& tensor);
template <>
ref::Tensor<double> as(const FileTensor& tensor) {
  return {tensor.shape, to_doubles(tensor)};
}
template <>
ref::Tensor<int64_t> as(const FileTensor& tensor) {
  return {tensor.shape, to_integers(tensor)};
}

/// The last bias of phi_k moves all compressed keys alike, which a softmax does not see (unless
/// RoPE follows): its gradient is a sum of terms that cancel, as large as those of the weight
/// beside it.
double scale_of_cancelling_terms(const std::string& name,
                                 const std::map<std::string, FileTensor>& expected) {
  double largest = 0;
  if (name == "d_phi_k.b2")
    for (const double value : to_doubles(expected.at("d_phi_k.w2")))
      largest = std::max(largest, std::abs(value));
  return largest;
}

std::string difference(const std::string& name, const FileTensor& have,
                       const std::map<std::string, FileTensor>& expected) {
  const FileTensor& want = expected.at(name);
  if (have.dtype != want.dtype)
    return "dtype " + std::string(name_of(have.dtype)) + ", expected " +
           std::string(name_of(want.dtype));
  if (want.dtype == Dtype::kF64) {
    Agreement agreement = agreement_for(name);
    agreement.scale_floor =
        std::max(agreement.scale_floor, scale_of_cancelling_terms(name, expected));
    return first_difference(as<double>(have), as<double>(want), agreement);
  }
  return first_difference(as<int64_t>(have), as<int64_t>(want));
}

}  // namespace

json small_cfg() {
  return {{"Hq", 6},    {"Hkv", 2}, {"dk", 8},        {"dv", 6},      {"l", 8}, {"d", 4},
          {"lsel", 16}, {"n", 4},   {"n_initial", 1}, {"n_local", 2}, {"w", 12}};
}

TensorFile RandomFile::make() const {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const bool packed = !cu_seqlens.empty();
  TensorFile file;
  const auto draw = [&](const std::string& name, const std::vector<int64_t>& shape, double scale) {
    int64_t count = 1;
    for (const int64_t axis : shape) count *= axis;
    std::vector<double> values(static_cast<size_t>(count));
    for (double& value : values) value = scale * normal(random);
    file.tensors[name] = from_doubles(shape, values, Dtype::kF64);
  };
  const auto tokens = [&](const std::string& name, int64_t heads, int64_t D) {
    draw(name, packed ? std::vector{S, heads, D} : std::vector{B, S, heads, D}, 1.0);
  };
  const int64_t Hq = cfg["Hq"], Hkv = cfg["Hkv"], l = cfg["l"];
  tokens("q", Hq, cfg["dk"]);
  tokens("d_o", Hq, cfg["dv"]);
  tokens(cfg.value("gate", "none") == "none" ? "gates" : "gate_logits", shared_gates ? Hkv : Hq, 3);
  for (const auto& [side, D] :
       {std::pair<std::string, int64_t>{"k", cfg["dk"]}, {"v", cfg["dv"]}}) {
    for (const char* branch : {"_cmp_src", "_sel", "_win"}) tokens(side + branch, Hkv, D);
    if (cfg.value("phi", "mean") == "conv") draw("conv_" + side, {D, l}, 1.0 / double(l));
    if (cfg.value("phi", "mean") != "mlp") continue;
    draw("phi_" + side + ".pe", {l, D}, 0.1);
    draw("phi_" + side + ".w1", {D, l * D}, 1.0 / double(l));
    draw("phi_" + side + ".b1", {D}, 0.1);
    draw("phi_" + side + ".w2", {D, D}, 0.3);
    draw("phi_" + side + ".b2", {D}, 0.1);
  }
  json config = {{"name", "random"}, {"kind", kind}, {"B", B}, {"S", S}, {"cfg", cfg}};
  if (!prefill.empty()) config["prefill"] = prefill;
  if (packed)
    file.tensors["cu_seqlens"] =
        from_integers({static_cast<int64_t>(cu_seqlens.size())}, cu_seqlens, Dtype::kI32);
  file.metadata["config"] = config.dump();
  return file;
}

std::map<std::string, FileTensor> oracle_outputs(const TensorFile& file, bool gradients) {
  const ReferenceCase c = make_case(file);
  std::map<std::string, FileTensor> all;
  const ref::Outputs out = run_oracle(c, all);
  all["q_rot"] = of(out.q_rot), all["k_cmp"] = of(out.k_cmp), all["v_cmp"] = of(out.v_cmp);
  all["p_cmp"] = of(out.p_cmp), all["scores"] = of(out.scores);
  all["block_idx"] = of(out.block_idx), all["ranges"] = of(out.ranges);
  all["o_cmp"] = of(out.o_cmp), all["o_sel"] = of(out.o_sel), all["o_win"] = of(out.o_win);
  all["o"] = of(out.o), all["lse_cmp"] = of(out.lse_cmp), all["lse_sel"] = of(out.lse_sel);
  all["lse_win"] = of(out.lse_win);
  if (c.kind == "decode") all["reads"] = of(out.reads);
  if (gradients) add_gradients(c, all);
  return all;
}

int expect_agreement(const TensorFile& outputs, const std::map<std::string, FileTensor>& expected,
                     const std::set<std::string>& not_made) {
  int compared = 0;
  for (const auto& [name, _] : expected) {
    if (not_made.contains(name)) {
      EXPECT_FALSE(outputs.has(name)) << name << " was not expected";
      continue;
    }
    ++compared;
    if (outputs.has(name))
      EXPECT_EQ(difference(name, outputs.tensors.at(name), expected), "") << name;
    else
      ADD_FAILURE() << name << " is missing in the output";
  }
  return compared;
}

std::string error_of(const TensorFile& file, const EvalOptions& options,
                     const std::string& overriding) {
  try {
    evaluate(file, options, overriding);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TensorFile on_expected(TensorFile file, const std::map<std::string, FileTensor>& expected,
                       const std::set<std::string>& names) {
  for (const std::string& name : names) file.tensors[name] = expected.at(name);
  return file;
}

FileTensor zeros(const std::vector<int64_t>& shape, Dtype dtype) {
  size_t bytes = size_bytes(dtype);
  for (const int64_t axis : shape) bytes *= static_cast<size_t>(axis);
  return {dtype, shape, std::vector<std::byte>(bytes)};
}

}  // namespace suites::eval
