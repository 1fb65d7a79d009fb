#include "nsa/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "base/text/nearest.h"
#include "nsa/program/strict_json.h"

namespace nsa {
namespace {

namespace fs = std::filesystem;

/// A scale of the attention, or nothing where the key is absent.
std::optional<double> read_scale(StrictObject& object, const char* key) {
  const double value = object.optional(key, std::numeric_limits<double>::quiet_NaN());
  return std::isnan(value) ? std::nullopt : std::optional(value);  // JSON has no NaN
}

/// The keys of "attention" carry the names of NsaConfig and ProjectionConfig.
void read_attention(StrictObject object, NsaConfig& c, ProjectionConfig& projections) {
  c.num_heads = object.required<int64_t>("num_heads");
  c.num_kv_heads = object.required<int64_t>("num_kv_heads");
  c.qk_head_dim = object.required<int64_t>("qk_head_dim");
  c.v_head_dim = object.required<int64_t>("v_head_dim");
  c.block_size = object.required<int64_t>("block_size");
  c.block_stride = object.required<int64_t>("block_stride");
  c.sel_block_size = object.required<int64_t>("sel_block_size");
  c.top_n = object.required<int64_t>("top_n");
  c.num_initial = object.optional("num_initial", c.num_initial);
  c.num_local = object.optional("num_local", c.num_local);
  c.window = object.required<int64_t>("window");
  c.phi = parse_phi(object.optional("phi", to_string(c.phi)));
  c.gate = parse_gate_activation(object.optional("gate", to_string(c.gate)));
  c.rope = parse_rope_mode(object.optional("rope", to_string(c.rope)));
  c.rope_base = object.optional("rope_base", c.rope_base);
  c.rope_pairs = parse_rope_pairs(object.optional("rope_pairs", to_string(c.rope_pairs)));
  c.scale_cmp = read_scale(object, "scale_cmp");
  c.scale_sel = read_scale(object, "scale_sel");
  c.scale_win = read_scale(object, "scale_win");
  projections.shared_kv = object.optional("shared_kv", projections.shared_kv);
  projections.gate =
      parse_gate_projection(object.optional("gate_projection", to_string(projections.gate)));
  object.finish();
}

AttentionKind read_attention_kind(StrictObject& object) {
  const auto text = object.optional<std::string>("attention_kind", "nsa");
  if (text == "dense") return AttentionKind::kDense;
  if (text == "nsa") return AttentionKind::kNsa;
  throw std::invalid_argument("attention_kind must be nsa or dense, got \"" + text + "\"");
}

ExpectedRate read_expected(const nlohmann::json& json, const std::string& where,
                           const std::string& text) {
  StrictObject object(json, where, text);
  ExpectedRate rate{.hardware = object.required<std::string>("hardware"),
                    .source = object.required<std::string>("source"),
                    .low = object.required<double>("low_tok_s"),
                    .high = object.required<double>("high_tok_s")};
  object.finish();
  if (!(rate.low > 0 && rate.low <= rate.high))
    object.fail(json, "\"low_tok_s\" must be above 0 and at most \"high_tok_s\"");
  return rate;
}

std::string known_names(const std::vector<fs::path>& folders, std::vector<std::string>& names) {
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list.empty() ? "none found" : list;
}

fs::path find_config(const std::string& name, const std::vector<fs::path>& folders) {
  if (name.ends_with(".json")) return name;
  for (const fs::path& folder : folders)
    if (fs::exists(folder / (name + ".json"))) return folder / (name + ".json");
  std::vector<std::string> names;
  const std::string list = known_names(folders, names);
  const std::string nearest = base::nearest_name(name, names);
  throw InputError("unknown model \"" + name + "\"; known: " + list +
                   (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

}  // namespace

void ModelConfig::validate() const {
  const auto at_least_1 = [this](const char* field, int64_t value) {
    if (value < 1)
      throw InputError("model " + name + ": " + field + " must be >= 1, got " +
                       std::to_string(value));
  };
  at_least_1("vocab", vocab);
  at_least_1("dim", dim);
  at_least_1("num_layers", num_layers);
  at_least_1("mlp_hidden", mlp_hidden);
  at_least_1("seq_len", seq_len);
  if (!(norm_eps > 0))
    throw InputError("model " + name + ": norm_eps must be > 0, got " + std::to_string(norm_eps));
  try {
    attention.validate();
  } catch (const std::invalid_argument& e) {
    throw InputError("model " + name + ": " + e.what());
  }
  const bool scaled = attention.scale_cmp || attention.scale_sel || attention.scale_win;
  if (scaled && attention_kind == AttentionKind::kDense)
    throw InputError("model " + name +
                     ": scale_cmp, scale_sel and scale_win must be absent where attention_kind is "
                     "dense: it has no branches and takes 1 / sqrt(qk_head_dim)");
}

std::string describe(const ModelConfig& config) {
  const NsaConfig& a = config.attention;
  std::ostringstream text;
  text.precision(17);
  text << config.name
       << (config.attention_kind == AttentionKind::kDense ? ": dense, vocab " : ": vocab ")
       << config.vocab << ", dim " << config.dim << ", layers " << config.num_layers << ", hidden "
       << config.mlp_hidden << ", norm_eps " << config.norm_eps << ", heads " << a.num_heads << "/"
       << a.num_kv_heads << " of " << a.qk_head_dim << "/" << a.v_head_dim << ", blocks "
       << a.block_size << "/" << a.block_stride << "/" << a.sel_block_size << ", top_n " << a.top_n
       << " (" << a.num_initial << ", " << a.num_local << "), window " << a.window << ", phi "
       << to_string(a.phi) << ", gate " << to_string(a.gate) << ", rope " << to_string(a.rope)
       << " " << a.rope_base;
  // Only where they are set: checkpoints hold this line, those of earlier versions among them.
  if (a.rope_pairs != RopePairs::kInterleaved) text << " " << to_string(a.rope_pairs);
  if (a.scale_cmp || a.scale_sel || a.scale_win)
    text << ", scales " << a.cmp_scale() << "/" << a.sel_scale() << "/" << a.win_scale();
  if (config.projections.shared_kv) text << ", shared K and V";
  if (!config.projections.has_gate_mlp())
    text << ", gate projection " << to_string(config.projections.gate);
  const char* const branches[] = {"compressed", "selected", "window"};
  for (size_t i = 0; i < std::size(branches); ++i)
    if (!config.projections.branch_on[i]) text << ", without " << branches[i];
  if (config.tied_head) text << ", tied head";
  return text.str();
}

ModelConfig parse_model_config(const std::string& text, const std::string& where) {
  const nlohmann::json json = parse_strict_json(text, where);
  StrictObject object(json, where, text);
  ModelConfig c;
  c.name = object.required<std::string>("name");
  object.ignore("doc");
  c.vocab = object.required<int64_t>("vocab");
  c.dim = object.required<int64_t>("dim");
  c.num_layers = object.required<int64_t>("num_layers");
  c.mlp_hidden = object.required<int64_t>("mlp_hidden");
  c.seq_len = object.required<int64_t>("seq_len");
  c.norm_eps = object.optional("norm_eps", c.norm_eps);
  c.tied_head = object.optional("tied_head", c.tied_head);
  c.activation_checkpointing =
      object.optional("activation_checkpointing", c.activation_checkpointing);
  object.ignore("expected");
  if (json.contains("expected"))
    for (const nlohmann::json& rate : json["expected"])
      c.expected.push_back(read_expected(rate, where, text));
  try {
    c.attention_kind = read_attention_kind(object);
    read_attention(object.child("attention"), c.attention, c.projections);
  } catch (const std::invalid_argument& e) {
    throw InputError(where + ": " + e.what());
  }
  object.finish();
  c.validate();
  return c;
}

ModelConfig load_model_config(const std::string& name_or_file,
                              const std::vector<fs::path>& folders) {
  const fs::path path = find_config(name_or_file, folders);
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError("cannot read model configuration " + path.string());
  return parse_model_config({std::istreambuf_iterator<char>(in), {}}, path.string());
}

std::vector<fs::path> model_config_folders() {
  std::vector<fs::path> folders = {"configs/models"};
  std::error_code error;
  fs::path above = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int level = 0; level < 4 && above.has_parent_path(); ++level, above = above.parent_path())
    folders.push_back(above / "configs" / "models");
  return folders;
}

}  // namespace nsa
