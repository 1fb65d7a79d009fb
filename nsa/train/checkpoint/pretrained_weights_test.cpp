// Weights under the names of the NSA-1B files: the model that they make against formulas in fp64,
// and every file that does not fit by name.
#include "nsa/train/checkpoint/pretrained_weights.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "base/testing/paths.h"
#include "nsa/model/blocks/loss.h"
#include "nsa/model/decoder_cache.h"
#include "nsa/ops/common/oracle_util.h"
#include "nsa/program/input_error.h"
#include "nsa/reference/reference.h"
#include "nsa/train/checkpoint/weights_testing.h"
#include "nsa/train/loop/training_attention.h"
#include "nsa/train/run.h"
#include "nsa/train/run_parts.h"

namespace nsa::train {
namespace {

namespace fs = std::filesystem;
namespace ref = reference;
using tensor_file::Dtype;
using tensor_file::TensorFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kRelative = 1e-12;  ///< o of nsa in fp64, docs/tolerances.md

ModelConfig config_of(const nlohmann::json& model) {
  return parse_model_config(model.dump(), "family.json");
}

nlohmann::json with_attention(const nlohmann::json& attention) {
  return small_family_model(nlohmann::json::object(), attention);
}

/// The model as formulas in fp64, straight from the tensors of the file; attention by the oracle.
class Formulas {
 public:
  explicit Formulas(const TensorFile& file) : file_(file) {
    config_.num_heads = 4, config_.num_kv_heads = 2;
    config_.qk_head_dim = config_.v_head_dim = 16;
    config_.block_size = config_.block_stride = config_.sel_block_size = 8;
    config_.top_n = 4, config_.window = 12;
    config_.gate = ref::Gate::kSigmoid, config_.rope_base = 5e5;
    config_.rope_pairs = ref::RopePairs::kHalfSplit;
  }

  at::Tensor logits(const at::Tensor& tokens, const std::string& head) const {
    at::Tensor x = weight("model.embed_tokens").index_select(0, tokens.flatten());
    x = x.view({tokens.size(0), tokens.size(1), -1});
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      x = x + attention(layer + "self_attn.", norm(x, layer + "input_layernorm"));
      const at::Tensor h = norm(x, layer + "post_attention_layernorm");
      const at::Tensor gate = times(h, layer + "mlp.gate_proj");
      x = x + times(gate / (1 + (-gate).exp()) * times(h, layer + "mlp.up_proj"),
                    layer + "mlp.down_proj");
    }
    return times(norm(x, "model.norm"), head);
  }

 private:
  at::Tensor weight(const std::string& name) const {
    const tensor_file::FileTensor& tensor = file_.tensors.at(name + ".weight");
    return at::tensor(to_doubles(tensor), at::kDouble).view(tensor.shape);
  }
  at::Tensor times(const at::Tensor& x, const std::string& name) const {
    return x.matmul(weight(name).t());
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return x / (x.square().mean(-1, true) + 1e-5).sqrt() * weight(name);
  }
  at::Tensor attention(const std::string& name, const at::Tensor& x) const {
    const auto heads = [&](const char* projection, int64_t count) {
      return ref_of<double>(times(x, name + projection).unflatten(-1, {count, -1}));
    };
    ref::Inputs in;
    in.q = heads("q_proj", 4);
    in.k_cmp_src = in.k_sel = in.k_win = heads("k_proj", 2);
    in.v_cmp_src = in.v_sel = in.v_win = heads("v_proj", 2);
    in.gates = heads("g_proj", 4);
    return times(to_aten(ref::forward(config_, in).o, at::kDouble).flatten(-2), name + "o_proj");
  }

  const TensorFile& file_;
  ref::Config config_;
};

class PretrainedWeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    dir_ = fs::temp_directory_path() / ("nsa_weights_test_" + std::to_string(getpid()));
    remove_folder();
    fs::create_directories(dir_);
  }
  void TearDown() override { remove_folder(); }
  /// By a command: the remove_all that LibTorch exports crashes where there are files.
  void remove_folder() const { EXPECT_EQ(std::system(("rm -rf " + dir_.string()).c_str()), 0); }

  fs::path write(const TensorFile& file, const std::string& name = "model.safetensors") {
    write_tensor_file(dir_ / name, file);
    return dir_ / name;
  }
  /// A model of `type` whose parameters were all NaN before they were loaded.
  static Decoder loaded(const fs::path& path, const nlohmann::json& model = small_family_model(),
                        at::ScalarType type = at::kDouble) {
    Decoder decoder(config_of(model));
    decoder->to(type);
    decoder->compute_type = type;
    for (const at::Tensor& p : decoder->parameters()) p.detach().fill_(std::nan(""));
    load_pretrained_weights(path, *decoder);
    return decoder;
  }
  static std::string error_of(const fs::path& path,
                              const nlohmann::json& model = small_family_model()) {
    try {
      loaded(path, model);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  /// The error for the usual tensors after a change.
  template <class Change>
  std::string error_after(Change&& change, const nlohmann::json& model = small_family_model()) {
    TensorFile file = random_family_weights(1);
    change(file);
    return error_of(write(file), model);
  }
  static void expect_close(const at::Tensor& have, const at::Tensor& want) {
    ASSERT_EQ(have.sizes(), want.sizes());
    const double difference = (have - want).abs().max().item<double>();
    const double scale = want.abs().max().item<double>();
    EXPECT_GT(scale, 0.1);
    EXPECT_LE(difference, kRelative * scale);
    RecordProperty("relative_difference", std::to_string(difference / scale * 1e12) + "e-12");
  }

  fs::path dir_;
  const at::Tensor tokens_ = at::randint(300, {2, 75}, at::kLong);
};

TEST_F(PretrainedWeightsTest, LogitsAreThoseOfTheFormulas) {
  const TensorFile file = random_family_weights(1);
  const Decoder model = loaded(write(file));
  const auto out = DecoderImpl::Outputs(Decoder(model)->forward(tokens_));
  EXPECT_EQ(out.gates.at(1).sizes(), at::IntArrayRef({2, 75, 4, 3}));
  expect_close(out.logits.detach(), Formulas(file).logits(tokens_, "model.embed_tokens"));
}

TEST_F(PretrainedWeightsTest, AnUntiedHeadIsLoadedToo) {
  TensorFile file = random_family_weights(2);
  file.tensors["lm_head.weight"] = random_family_weights(3).tensors.at("model.embed_tokens.weight");
  Decoder model = loaded(write(file), small_family_model({{"tied_head", false}}));
  expect_close(model->forward(tokens_).logits.detach(), Formulas(file).logits(tokens_, "lm_head"));
}

TEST_F(PretrainedWeightsTest, InterleavedPairsComputeTheSame) {
  const TensorFile file = random_family_weights(4);
  Decoder model = loaded(write(file), with_attention({{"rope_pairs", "interleaved"}}));
  expect_close(model->forward(tokens_).logits.detach(),
               Formulas(file).logits(tokens_, "model.embed_tokens"));
}

TEST_F(PretrainedWeightsTest, EveryParameterGetsAFiniteGradient) {
  Decoder model = loaded(write(random_family_weights(5)), small_family_model(), at::kFloat);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    model->compute_type = type;
    model->zero_grad();
    const at::Tensor tokens = at::randint(300, {2, 65}, at::kLong);
    next_token_loss(model->forward(tokens.slice(1, 0, -1)).logits, tokens).backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
      EXPECT_GT(item.value().grad().abs().max().item<float>(), 0) << item.key();
    }
  }
}

TEST_F(PretrainedWeightsTest, TokenByTokenIsTheSame) {
  Decoder model = loaded(write(random_family_weights(6)));
  DecoderCache cache(model, 2, 75);
  const at::Tensor head = cache.prefill(tokens_.slice(1, 0, 40), {40, 40});
  const at::Tensor want = model->forward(tokens_).logits.detach();
  expect_close(head, want.slice(1, 0, 40));
  for (int64_t t = 40; t < 75; ++t)
    expect_close(cache.step(tokens_.slice(1, t, t + 1)), want.slice(1, t, t + 1));
}

TEST_F(PretrainedWeightsTest, EveryFloatTypeBecomesTheTypeOfTheParameters) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF64}) {
    const TensorFile file = random_family_weights(7, dtype);
    Decoder model = loaded(write(file), small_family_model(), at::kFloat);
    const tensor_file::FileTensor& up = file.tensors.at("model.layers.1.mlp.up_proj.weight");
    const at::Tensor want = at::tensor(to_doubles(up), at::kDouble).view(up.shape).to(at::kFloat);
    EXPECT_TRUE(at::equal(model->named_parameters()["layer1.w_gate_up"].slice(0, 96), want))
        << name_of(dtype);
    for (const at::Tensor& p : model->parameters()) {
      EXPECT_EQ(p.scalar_type(), at::kFloat);
      EXPECT_TRUE(p.isfinite().all().item<bool>());
    }
  }
}

TEST_F(PretrainedWeightsTest, FoldersAndShardsHoldTheSame) {
  const TensorFile file = random_family_weights(8);
  write_shards(dir_ / "shards", file);
  fs::create_directories(dir_ / "folder");
  write(file, "folder/model.safetensors");
  const Decoder want = loaded(dir_ / "folder" / "model.safetensors");
  for (const char* path : {"folder", "shards", "shards/model.safetensors.index.json"}) {
    const Decoder have = loaded(dir_ / path);
    for (const auto& item : want->named_parameters())
      EXPECT_TRUE(at::equal(have->named_parameters()[item.key()], item.value()))
          << path << " " << item.key();
  }
}

TEST_F(PretrainedWeightsTest, ATiedHeadMayStandInTheFile) {
  EXPECT_EQ(error_after([](TensorFile& file) {
              file.tensors["lm_head.weight"] = file.tensors["model.embed_tokens.weight"];
            }),
            "");
  EXPECT_THAT(error_after([](TensorFile& file) {
                file.tensors["lm_head.weight"] =
                    random_family_weights(2).tensors["model.embed_tokens.weight"];
              }),
              HasSubstr("tensor lm_head.weight differs from model.embed_tokens.weight, and the "
                        "model has tied_head true"));
}

TEST_F(PretrainedWeightsTest, TensorsThatDoNotFitAreAllNamed) {
  const std::string error = error_after([](TensorFile& file) {
    file.tensors.erase("model.norm.weight");
    file.tensors.erase("model.layers.1.self_attn.g_proj.weight");
    file.tensors["model.layers.2.mlp.up_proj.weight"] =
        file.tensors["model.layers.1.mlp.up_proj.weight"];
    auto& q = file.tensors["model.layers.0.self_attn.q_proj.weight"];
    q = tensor_file::from_doubles({32, 64}, std::vector<double>(2048), Dtype::kF32);
    auto& k = file.tensors["model.layers.0.self_attn.k_proj.weight"];
    k = tensor_file::from_integers({32, 64}, std::vector<int64_t>(2048), Dtype::kI32);
  });
  const std::string path = (dir_ / "model.safetensors").string();
  EXPECT_THAT(
      error,
      AllOf(HasSubstr("weights: " + path + " does not fit model family: "),
            HasSubstr("tensor model.norm.weight [64] is missing"),
            HasSubstr("tensor model.layers.1.self_attn.g_proj.weight [12, 64] is missing"),
            HasSubstr(path + ": tensor model.layers.2.mlp.up_proj.weight is unknown to the model"),
            HasSubstr(path + ": tensor model.layers.0.self_attn.q_proj.weight must be [64, 64], "
                             "got [32, 64]"),
            HasSubstr("model.layers.0.self_attn.k_proj.weight must be F32, BF16, F16 or F64, got "
                      "I32")));
  EXPECT_THAT(error, Not(HasSubstr("v_proj")));
  EXPECT_THAT(error_after([](TensorFile&) {}, small_family_model({{"vocab", 256}})),
              HasSubstr("tensor model.embed_tokens.weight must be [256, 64], got [300, 64]"));
}

TEST_F(PretrainedWeightsTest, ModelsWithOtherProjectionsAreRefused) {
  const fs::path path = write(random_family_weights(1));
  EXPECT_THAT(error_of(path, with_attention({{"shared_kv", false}})),
              HasSubstr("model family must have shared_kv true, as nsa_1b has"));
  EXPECT_THAT(error_of(path, with_attention({{"gate_projection", "mlp"}})),
              HasSubstr("must have gate_projection linear"));
  EXPECT_THAT(error_of(path, with_attention({{"phi", "conv"}})), HasSubstr("phi mean"));
  EXPECT_THAT(error_of(path, small_family_model({{"attention_kind", "dense"}})),
              HasSubstr("attention_kind nsa"));
}

TEST_F(PretrainedWeightsTest, FilesThatAreNoneAreNamed) {
  EXPECT_THAT(error_of(dir_ / "none"), HasSubstr("/none does not exist"));
  EXPECT_THAT(error_of("/dev/null"), HasSubstr("/dev/null is no regular file"));
  EXPECT_THAT(error_of(dir_), HasSubstr("has neither model.safetensors nor "
                                        "model.safetensors.index.json"));
  const fs::path path = write(random_family_weights(1));
  fs::resize_file(path, fs::file_size(path) - 1);
  EXPECT_THAT(error_of(path), HasSubstr("weights: " + path.string() + ": "));
  fs::resize_file(path, 4);
  EXPECT_THAT(error_of(path), HasSubstr(path.string() + ": "));
}

TEST_F(PretrainedWeightsTest, IndicesThatAreWrongAreNamed) {
  const fs::path folder = dir_ / "shards", index = folder / "model.safetensors.index.json";
  write_shards(folder, random_family_weights(1));
  const auto edited = [&](const std::string& tensor, const nlohmann::json& file) {
    nlohmann::json json = nlohmann::json::parse(std::ifstream(index));
    json["weight_map"][tensor] = file;
    std::ofstream(folder / "other.safetensors.index.json") << json.dump();
    return error_of(folder / "other.safetensors.index.json");
  };
  const std::string norm = "model.norm.weight";
  EXPECT_THAT(edited(norm, "model-00003-of-00002.safetensors"),
              AllOf(HasSubstr("model-00003-of-00002.safetensors does not exist, and "),
                    HasSubstr("has tensor model.norm.weight in it; the download is incomplete")));
  EXPECT_THAT(edited(norm, "../model.safetensors"),
              HasSubstr("must give tensor model.norm.weight a file beside the index"));
  EXPECT_THAT(edited(norm, 3), HasSubstr("a file beside the index, got 3"));
  EXPECT_THAT(edited("model.extra", "model-00001-of-00002.safetensors"),
              HasSubstr("model-00001-of-00002.safetensors has no tensor model.extra, which the "
                        "index has in it"));
  std::ofstream(index) << "{\"weight_map\": {}}";
  EXPECT_THAT(error_of(folder), HasSubstr("\"weight_map\" names no tensor"));
  std::ofstream(index) << "{\"metadata\": {}}";
  EXPECT_THAT(error_of(folder), HasSubstr("key \"weight_map\" is missing"));
}

TEST_F(PretrainedWeightsTest, ATensorInTwoFilesIsNamed) {
  const TensorFile file = random_family_weights(1);
  write_shards(dir_, file);
  TensorFile second = tensor_file::read_tensor_file(dir_ / "model-00002-of-00002.safetensors");
  second.tensors["model.embed_tokens.weight"] = file.tensors.at("model.embed_tokens.weight");
  write(second, "model-00002-of-00002.safetensors");
  EXPECT_THAT(error_of(dir_), HasSubstr("tensor model.embed_tokens.weight is in "));
}

/// A run of `options`; its first beat, and what it printed.
struct FirstStep {
  double loss = std::nan("");
  std::string failure, printed;
};
FirstStep run_first_step(const TrainOptions& options, const fs::path& result) {
  FirstStep first;
  {
    ResultLines lines(result.string());
    const SwitchSet switches = SwitchSet::from_environment({}, {});
    RunContext context;
    context.lines = &lines, context.switches = &switches;
    context.print = [&](const std::string& line) { first.printed += line + "\n"; };
    first.failure = run_case(options, context).failure;
  }
  std::ifstream in(result);
  for (std::string line; std::getline(in, line) && std::isnan(first.loss);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["type"] == "beat" && json["at"] == "step") first.loss = json["extra"]["loss"];
  }
  return first;
}

TEST_F(PretrainedWeightsTest, ARunStartsFromThem) {
  std::ofstream(dir_ / "family.json") << small_family_model().dump();
  TrainOptions options;
  options.model = (dir_ / "family.json").string(), options.data = "synthetic";
  options.steps = 2, options.warmup = 0, options.batch = 2;
  const FirstStep random = run_first_step(options, dir_ / "random");
  options.weights = write(random_family_weights(9)).string();
  const FirstStep from_weights = run_first_step(options, dir_ / "weights");
  EXPECT_EQ(random.failure + from_weights.failure, "");
  EXPECT_THAT(from_weights.printed, HasSubstr("model.safetensors: 22 tensors, sha256 "));

  at::Tensor rows = at::empty({2, 65}, at::kByte);
  for (int64_t row = 0; row < 2; ++row)
    make_synthetic_source(256, options.seed)
        ->read_row(row, std::span(rows[row].mutable_data_ptr<uint8_t>(), 65));
  Decoder model = loaded(options.weights, small_family_model(), at::kFloat);
  const auto attention =
      training_attention(SwitchSet::from_environment({}, {}), options.backend, at::kCPU);
  model->set_attention_options(attention.options);
  const at::Tensor tokens = rows.to(at::kLong);
  const double want =
      next_token_loss(model->forward(tokens.slice(1, 0, -1)).logits, tokens).item<double>();
  EXPECT_DOUBLE_EQ(from_weights.loss, want);
  EXPECT_NEAR(random.loss, std::log(300.0), 0.2);
  EXPECT_GT(std::abs(from_weights.loss - random.loss), 0.5);
}

}  // namespace
}  // namespace nsa::train
