#include "suites/reference_cases/judge.h"

#include <algorithm>
#include <set>

#include "suites/reference_cases/agreement.h"

namespace suites {
namespace {

namespace ref = nsa::reference;

/// Compares tensors of one case and remembers which expected ones were used.
class Judge {
 public:
  explicit Judge(const ReferenceCase& c) : case_(c) {}

  bool wants(const std::string& name) const { return case_.expected.contains(name); }
  ref::Tensor<double> doubles(const std::string& name) const {
    return as_doubles(case_.expected.at(name));
  }
  ref::Tensor<int32_t> indices(const std::string& name) const {
    return as_indices(case_.expected.at(name));
  }

  void compare(const std::string& stage, const std::string& name,
               const ref::Tensor<double>& actual) {
    if (!wants(name)) return;
    note(stage, name, first_difference(actual, doubles(name), agreement_for(name)));
  }
  void compare(const std::string& stage, const std::string& name,
               const ref::Tensor<int32_t>& actual) {
    if (wants(name)) note(stage, name, first_difference(actual, indices(name)));
  }
  void compare(const std::string& stage, const std::string& name,
               const ref::Tensor<int64_t>& actual) {
    if (!wants(name)) return;
    const FileTensor& tensor = case_.expected.at(name);
    note(stage, name,
         first_difference(actual, ref::Tensor<int64_t>(tensor.shape, to_integers(tensor))));
  }

  Judgement finish() && {
    for (const auto& [name, _] : case_.expected)
      if (!used_.contains(name)) judgement_.failures.push_back("nothing compares expected." + name);
    return std::move(judgement_);
  }

 private:
  void note(const std::string& stage, const std::string& name, const std::string& difference) {
    used_.insert(name);
    judgement_.compared.push_back(stage + ": " + name);
    if (!difference.empty()) judgement_.failures.push_back(stage + ": " + name + ": " + difference);
  }

  const ReferenceCase& case_;
  Judgement judgement_;
  std::set<std::string> used_;
};

/// Margins of all rows; scores [...,Hkv,blocks] with t(row) the position of a row.
template <class Position>
ref::Tensor<double> margins(const ref::Config& c, const ref::Tensor<double>& scores,
                            const Position& position) {
  ref::Shape shape = scores.shape();
  const auto width = static_cast<size_t>(shape.back());
  shape.pop_back();
  ref::Tensor<double> out(shape);
  for (size_t i = 0; i < out.values().size(); ++i)
    out.values()[i] = ref::selection_margin(c, std::span(scores.values()).subspan(i * width, width),
                                            position(i / static_cast<size_t>(shape.back())));
  return out;
}

/// Position of flat token number i in its sequence or document.
int64_t position_of(const ReferenceCase& c, size_t i) {
  const auto token = static_cast<int64_t>(i);
  if (c.kind != "varlen") return token % c.inputs.q.size(1);
  return token - *std::prev(std::ranges::upper_bound(c.cu_seqlens, token));
}

void compare_outputs(Judge& judge, const std::string& stage, const ref::Outputs& out) {
  judge.compare(stage, "q_rot", out.q_rot);
  judge.compare(stage, "k_cmp", out.k_cmp);
  judge.compare(stage, "v_cmp", out.v_cmp);
  judge.compare(stage, "p_cmp", out.p_cmp);
  judge.compare(stage, "scores", out.scores);
  judge.compare(stage, "block_idx", out.block_idx);
  judge.compare(stage, "ranges", out.ranges);
  judge.compare(stage, "o_cmp", out.o_cmp);
  judge.compare(stage, "o_sel", out.o_sel);
  judge.compare(stage, "o_win", out.o_win);
  judge.compare(stage, "o", out.o);
  judge.compare(stage, "lse_cmp", out.lse_cmp);
  judge.compare(stage, "lse_sel", out.lse_sel);
  judge.compare(stage, "lse_win", out.lse_win);
  judge.compare(stage, "reads", out.reads);
}

void compare_gradients(Judge& judge, const ref::Inputs& d) {
  const std::string stage = "backward";
  judge.compare(stage, "d_q", d.q);
  judge.compare(stage, "d_k_cmp_src", d.k_cmp_src);
  judge.compare(stage, "d_v_cmp_src", d.v_cmp_src);
  judge.compare(stage, "d_k_sel", d.k_sel);
  judge.compare(stage, "d_v_sel", d.v_sel);
  judge.compare(stage, "d_k_win", d.k_win);
  judge.compare(stage, "d_v_win", d.v_win);
  judge.compare(stage, "d_gates", d.gates);
  judge.compare(stage, "d_gate_logits", d.gates);
  for (const auto& [suffix, phi] : {std::pair{"k", &d.phi_k}, std::pair{"v", &d.phi_v}}) {
    const std::string mlp = std::string("d_phi_") + suffix + ".";
    judge.compare(stage, std::string("d_conv_") + suffix, phi->conv);
    judge.compare(stage, mlp + "pe", phi->pe);
    judge.compare(stage, mlp + "w1", phi->w1);
    judge.compare(stage, mlp + "b1", phi->b1);
    judge.compare(stage, mlp + "w2", phi->w2);
    judge.compare(stage, mlp + "b2", phi->b2);
  }
}

/// Stage values of the file, for "every stage on the expected values of the one before".
ref::Given expected_stages(const Judge& judge) {
  ref::Given given;
  if (judge.wants("k_cmp")) given.k_cmp = judge.doubles("k_cmp");
  if (judge.wants("v_cmp")) given.v_cmp = judge.doubles("v_cmp");
  if (judge.wants("block_idx")) given.block_idx = judge.indices("block_idx");
  if (judge.wants("ranges")) given.ranges = judge.indices("ranges");
  return given;
}

/// Selection from the expected scores is exact; so are ranges from the expected ids.
void compare_selection(Judge& judge, const ReferenceCase& c) {
  if (judge.wants("scores") && judge.wants("block_idx") && c.kind != "varlen")
    judge.compare("on expected scores", "block_idx",
                  ref::select(c.config, judge.doubles("scores")));
  if (judge.wants("block_idx") && c.kind != "varlen")
    judge.compare("on expected block_idx", "ranges",
                  ref::ranges(judge.indices("block_idx"), c.config.sel_block_size));
  if (judge.wants("p_cmp") && c.kind != "varlen")
    judge.compare("on expected p_cmp", "scores",
                  ref::group_scores(c.config, judge.doubles("p_cmp")));
}

void judge_layer(Judge& judge, const ReferenceCase& c) {
  const bool packed = c.kind == "varlen";
  const auto run = [&](const ref::Given& given) -> ref::Outputs {
    if (!packed) return ref::forward(c.config, c.inputs, given);
    return ref::forward_varlen(c.config, c.inputs, c.cu_seqlens, given);
  };
  const ref::Outputs out = run({});
  compare_outputs(judge, "end to end", out);
  judge.compare("end to end", "sel_margin",
                margins(c.config, out.scores, [&](size_t i) { return position_of(c, i); }));
  compare_selection(judge, c);

  const ref::Given given = expected_stages(judge);
  ref::Outputs staged = run(given);
  // Given values would be compared with themselves.
  for (const auto member : {&ref::Outputs::k_cmp, &ref::Outputs::v_cmp})
    staged.*member = out.*member;
  staged.block_idx = out.block_idx;
  staged.ranges = out.ranges;
  compare_outputs(judge, "on expected stages", staged);

  if (c.kind == "decode")
    compare_outputs(judge, "decode", ref::decode(c.config, c.inputs, c.prefill));
  if (packed) {
    const std::vector<int32_t> cu_cmp =
        ref::forward_varlen(c.config, c.inputs, c.cu_seqlens).cu_cmp;
    judge.compare("end to end", "cu_cmp",
                  ref::Tensor<int32_t>({static_cast<int64_t>(cu_cmp.size())}, cu_cmp));
  }
  if (c.d_o.defined() && packed)
    compare_gradients(judge, ref::backward_varlen(c.config, c.inputs, c.cu_seqlens, c.d_o, given));
  else if (c.d_o.defined())
    compare_gradients(judge, ref::backward(c.config, c.inputs, c.d_o, given));
}

}  // namespace

Judgement judge(const ReferenceCase& c) {
  Judge judge(c);
  if (c.kind == "topn") {
    judge.compare("select", "block_idx", ref::select(c.config, c.scores));
    const auto S = static_cast<size_t>(c.scores.size(1));
    judge.compare("select", "sel_margin", margins(c.config, c.scores, [S](size_t i) {
                    return static_cast<int64_t>(i % S);
                  }));
  } else if (c.kind == "ranges") {
    judge.compare("ranges", "ranges", ref::ranges(c.block_idx, c.config.sel_block_size));
  } else if (c.kind == "gates") {
    const auto logits = ref::gate_logits(c.inputs.q, c.config.num_kv_heads, c.gate_mlp);
    judge.compare("gate", "logits", logits);
    judge.compare("gate", "sigmoid", ref::activate(ref::Gate::kSigmoid, logits));
    judge.compare("gate", "softmax", ref::activate(ref::Gate::kSoftmax, logits));
  } else {
    judge_layer(judge, c);
  }
  return std::move(judge).finish();
}

}  // namespace suites
