#include "suites/eval/stages.h"

#include <ATen/ATen.h>

#include <limits>

#include "nsa/diagnostics/record_stage.h"
#include "nsa/ops/compressed/cmp_attn.h"
#include "nsa/ops/rope/rope.h"
#include "nsa/ops/select/positions.h"
#include "nsa/ops/select/scores.h"
#include "nsa/ops/select/top_n.h"
#include "nsa/ops/selected/sel_attn.h"
#include "nsa/ops/window/win_attn.h"

namespace suites::eval {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

/// How many ids [.., K] are above every id inside 0..floor(t / l') before them in their row.
int64_t kept_ids(const at::Tensor& ids, const at::Tensor& t, int64_t sel_block_size) {
  if (ids.numel() == 0) return 0;
  const at::Tensor last = t.floor_divide(sel_block_size).unsqueeze(-1).unsqueeze(-1);
  const at::Tensor inside = ids.masked_fill(ids.lt(0).logical_or_(ids.gt(last)), -1);
  const at::Tensor highest = std::get<0>(inside.cummax(-1));
  const at::Tensor before = at::cat(
      {at::full_like(highest.narrow(-1, 0, 1), -1), highest.narrow(-1, 0, ids.size(-1) - 1)}, -1);
  return inside.gt(before).sum().item<int64_t>();
}

at::Tensor positions(int64_t count, at::Device device) {
  return at::arange(count, at::TensorOptions().dtype(at::kLong).device(device));
}

/// f(part) for every document, or once; joined.
template <class F>
at::Tensor per_part(const Layout& layout, const F& f, int64_t width = -1) {
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < layout.num_parts(); ++i) parts.push_back(f(i));
  return layout.join(parts, width);
}

}  // namespace

nsa::PhiWeights phi_weights(Evaluation& run, const std::string& side, int64_t D) {
  const int64_t l = run.config.block_size;
  InputTensors& in = run.in;
  nsa::PhiWeights weights;
  if (run.config.phi == nsa::Phi::kConv)
    weights.conv = in.input("conv_" + side, {{"D", D}, {"l", l}});
  if (run.config.phi != nsa::Phi::kMlp) return weights;
  const std::string prefix = "phi_" + side + ".";
  weights.pe = in.input(prefix + "pe", {{"l", l}, {"D", D}});
  weights.w1 = in.input(prefix + "w1", {{"D", D}, {"l*D", l * D}});
  weights.b1 = in.input(prefix + "b1", {{"D", D}});
  weights.w2 = in.input(prefix + "w2", {{"D", D}, {"D", D}});
  weights.b2 = in.input(prefix + "b2", {{"D", D}});
  return weights;
}

at::Tensor Stages::rotate(const at::Tensor& x) {
  if (run_.config.rope == nsa::RopeMode::kNone) return x;
  return per_part(run_.layout, [&](size_t i) {
    return nsa::rope(run_.layout.part(x, i), positions(run_.layout.length(i), x.device()),
                     run_.config.rope_base, run_.config.rope_pairs);
  });
}

at::Tensor Stages::q_rot() {
  run_.need({"Hq", "dk"});
  const Axes axes =
      run_.layout.axes({{"Hq", run_.config.num_heads}, {"dk", run_.config.qk_head_dim}});
  const at::Tensor q =
      run_.in.has("q_rot") ? run_.in.input("q_rot", axes) : rotate(run_.in.input("q", axes));
  return run_.results["q_rot"] = q;
}

Stages::Compressed Stages::compressed() {
  run_.need({"Hkv", "dk", "dv", "l", "d"});
  const nsa::NsaConfig& c = run_.config;
  const Layout& layout = run_.layout;
  Compressed out;
  if (run_.in.has("k_cmp")) {
    out.k = run_.in.input("k_cmp", run_.block_axes({"dk", c.qk_head_dim}));
    if (run_.in.has("v_cmp")) out.v = run_.in.input("v_cmp", run_.block_axes({"dv", c.v_head_dim}));
    return out;
  }
  const auto source = [&](const char* name, const char* legend, int64_t D) {
    return run_.in.input(name, layout.axes({{"Hkv", c.num_kv_heads}, {legend, D}}));
  };
  const at::Tensor k = source("k_cmp_src", "dk", c.qk_head_dim);
  const at::Tensor v = source("v_cmp_src", "dv", c.v_head_dim);
  const nsa::PhiWeights phi_k = phi_weights(run_, "k", c.qk_head_dim);
  const nsa::PhiWeights phi_v = phi_weights(run_, "v", c.v_head_dim);
  std::vector<at::Tensor> k_parts, v_parts;
  for (size_t i = 0; i < layout.num_parts(); ++i) {
    auto [k_part, v_part] = nsa::compress(layout.part(k, i), layout.part(v, i), phi_k, phi_v, c);
    k_parts.push_back(k_part);
    v_parts.push_back(v_part);
  }
  if (layout.num_parts() > 0) {
    nsa::record_stage("compress", nsa::compress_backend(layout.part(k, 0), c));
  }
  out = {layout.join(k_parts), layout.join(v_parts)};
  run_.results["k_cmp"] = out.k;
  run_.results["v_cmp"] = out.v;
  if (layout.packed()) run_.results["cu_cmp"] = layout.cu_cmp(c);
  return out;
}

at::Tensor Stages::p_cmp(const at::Tensor& q_rot, const at::Tensor& k_cmp) {
  const int64_t width = run_.config.num_compressed(run_.layout.longest());
  return per_part(
      run_.layout,
      [&](size_t i) {
        return nsa::cmp_probs(run_.layout.part(q_rot, i),
                              run_.layout.part_blocks(k_cmp, i, run_.config), run_.config);
      },
      width);
}

at::Tensor Stages::given_scores() {
  if (!run_.in.has("scores")) return {};
  run_.need({"lsel"});
  return run_.in.accumulated(
      "scores", run_.layout.axes({run_.kv_axis(), {"ceil(S/l')", run_.width_of_scores()}}));
}

at::Tensor Stages::scores_of_p_cmp() {
  const int64_t width = run_.config.num_compressed(run_.layout.longest());
  const at::Tensor p = run_.in.accumulated(
      "p_cmp", run_.layout.axes({{"Hq", run_.config.num_heads}, {"N_c", width}}));
  return nsa::block_scores(nsa::group_sum(p, run_.config.num_kv_heads), run_.width_of_scores(),
                           run_.config);
}

at::Tensor Stages::computed_scores() {
  run_.need({"Hq", "Hkv", "l", "d", "lsel"});
  if (run_.in.has("p_cmp")) return run_.results["scores"] = scores_of_p_cmp();
  const Layout& layout = run_.layout;
  const at::Tensor q = q_rot();
  const Compressed cmp = compressed();
  const at::Tensor v = cmp.v.defined() ? cmp.v : cmp.k;  // any values: only P is used then
  const nsa::NsaOptions asked = run_.backends.effective();
  const nsa::BranchOptions options{asked.cmp, asked.strict_backend};
  std::vector<at::Tensor> out, lse, scores;
  for (size_t i = 0; i < layout.num_parts(); ++i) {
    const nsa::CmpAttnResult part =
        nsa::cmp_attn(layout.part(q, i), layout.part_blocks(cmp.k, i, run_.config),
                      layout.part_blocks(v, i, run_.config), run_.config, 0, options);
    out.push_back(part.out);
    lse.push_back(part.lse);
    scores.push_back(nsa::block_scores(part.group_probs,
                                       run_.config.num_sel_blocks(layout.length(i)), run_.config));
  }
  if (cmp.v.defined()) run_.results["o_cmp"] = layout.join(out);
  run_.results["lse_cmp"] = layout.join(lse);
  if (run_.wants_p_cmp()) run_.results["p_cmp"] = p_cmp(q, cmp.k);
  return run_.results["scores"] = layout.join(scores, run_.width_of_scores());
}

at::Tensor Stages::select(const at::Tensor& scores) {
  run_.need({"lsel", "n", "n_initial", "n_local"});
  nsa::record_stage("select", "plain");
  return per_part(run_.layout, [&](size_t i) {
    return nsa::select_blocks(run_.layout.part(scores, i),
                              positions(run_.layout.length(i), scores.device()), run_.config);
  });
}

at::Tensor Stages::computed_block_idx() {
  const at::Tensor given = given_scores();
  return run_.results["block_idx"] = select(given.defined() ? given : computed_scores());
}

at::Tensor Stages::given_block_idx() {
  if (run_.in.has("block_idx"))
    return run_.in.ids("block_idx",
                       run_.layout.axes({run_.kv_axis(), {"K", run_.size_or_any("K")}}));
  const at::Tensor scores = given_scores();
  return scores.defined() ? select(scores) : scores;
}

at::Tensor Stages::set_of(const at::Tensor& block_idx) {
  return per_part(run_.layout, [&](size_t i) {
    const nsa::BlockSet set = nsa::block_set(run_.layout.part(block_idx, i),
                                             positions(run_.layout.length(i), block_idx.device()),
                                             run_.config.sel_block_size);
    run_.dropped_ids += set.outside.item<int64_t>();
    return set.block_idx;
  });
}

at::Tensor Stages::converted_ranges() {
  run_.need({"lsel"});
  const at::Tensor given = given_block_idx();
  if (!given.defined()) return ranges_of(computed_block_idx());
  count_ignored(given);
  // What int32 cannot hold lies outside at either end.
  return ranges_of(given.clamp(kLeast, kMost).to(at::kInt));
}

void Stages::count_ignored(const at::Tensor& block_idx) {
  for (size_t i = 0; i < run_.layout.num_parts(); ++i) {
    const at::Tensor ids = run_.layout.part(block_idx, i);
    const at::Tensor t = positions(run_.layout.length(i), ids.device());
    const int64_t outside = nsa::count_outside(ids, t, run_.config.sel_block_size).item<int64_t>();
    const int64_t unused = ids.eq(-1).sum().item<int64_t>();
    run_.dropped_ids += outside;
    run_.unordered_ids +=
        ids.numel() - outside - unused - kept_ids(ids, t, run_.config.sel_block_size);
  }
}

at::Tensor Stages::ranges_of(const at::Tensor& ids) {
  nsa::record_stage("ranges", to_string(run_.backends.ranges));
  return run_.results["ranges"] = per_part(run_.layout, [&](size_t i) {
           return nsa::block_ranges(run_.backends.ranges, run_.layout.part(ids, i),
                                    positions(run_.layout.length(i), ids.device()),
                                    run_.config.sel_block_size);
         });
}

at::Tensor Stages::given_ranges() {
  if (!run_.in.has("ranges")) return {};
  return run_.in.indices("ranges", run_.layout.axes({run_.kv_axis(), {"K", -1}, {"2", 2}}));
}

at::Tensor Stages::ranges() {
  const at::Tensor given = given_ranges();
  if (given.defined()) return run_.results["ranges"] = given;
  run_.need({"lsel"});
  const at::Tensor ids = given_block_idx();
  return ranges_of(ids.defined() ? set_of(ids) : computed_block_idx());
}

void Stages::sel_attn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& ranges) {
  const Layout& layout = run_.layout;
  const nsa::NsaOptions asked = run_.backends.effective();
  const nsa::SelAttnOptions options{asked.sel, asked.safe_pack, asked.strict_backend};
  attend("sel", [&](size_t i) {
    return nsa::sel_attn(layout.part(q, i), layout.part(k, i), layout.part(v, i),
                         layout.part(ranges, i), 0, options, run_.config.scale_sel);
  });
}

void Stages::win_attn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const Layout& layout = run_.layout;
  const nsa::NsaOptions asked = run_.backends.effective();
  const nsa::BranchOptions options{asked.win, asked.strict_backend};
  attend("win", [&](size_t i) {
    return nsa::win_attn(layout.part(q, i), layout.part(k, i), layout.part(v, i),
                         run_.config.window, 0, options, run_.config.scale_win);
  });
}

template <class F>
void Stages::attend(const std::string& branch, const F& f) {
  std::vector<at::Tensor> out, lse;
  for (size_t i = 0; i < run_.layout.num_parts(); ++i) {
    auto [part_out, part_lse] = f(i);
    out.push_back(part_out);
    lse.push_back(part_lse);
  }
  run_.results["o_" + branch] = run_.layout.join(out);
  run_.results["lse_" + branch] = run_.layout.join(lse);
}

}  // namespace suites::eval
