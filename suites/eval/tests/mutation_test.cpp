// Files whose header is sound and whose content makes little sense: each one is evaluated or
// refused with an error that is meant for a reader; nothing else may come out.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <random>

#include "nsa/program/input_error.h"
#include "suites/eval/tests/testing.h"

namespace suites::eval {
namespace {

using nlohmann::json;
using Random = std::mt19937;

constexpr unsigned kSeed = 20260702;
constexpr int kFiles = 400;

size_t below(Random& random, size_t end) {
  return std::uniform_int_distribution<size_t>(0, end - 1)(random);
}

template <class Map>
typename Map::iterator any_of(Map& map, Random& random) {
  return std::next(map.begin(), static_cast<std::ptrdiff_t>(below(random, map.size())));
}

/// Another shape of as many or of no bytes, or another type.
void reshape(FileTensor& tensor, Random& random) {
  if (tensor.shape.empty()) return;
  const size_t axis = below(random, tensor.shape.size());
  switch (below(random, 4)) {
    case 0:
      std::swap(tensor.shape[axis], tensor.shape[0]);
      break;
    case 1:
      tensor.shape[axis] = 0;
      tensor.bytes.clear();
      break;
    case 2:
      tensor.shape.insert(tensor.shape.begin() + static_cast<std::ptrdiff_t>(axis), 1);
      break;
    default:
      if (tensor.dtype == Dtype::kI32)
        tensor.dtype = Dtype::kF32;
      else if (tensor.dtype == Dtype::kF64)
        tensor.dtype = Dtype::kI64;
  }
}

void scribble(FileTensor& tensor, Random& random) {
  for (int i = 0; i < 8 && !tensor.bytes.empty(); ++i)
    tensor.bytes[below(random, tensor.bytes.size())] = static_cast<std::byte>(below(random, 256));
}

void change_config(json& config, Random& random) {
  static const std::vector<json> values = {0,
                                           1,
                                           2,
                                           3,
                                           5,
                                           8,
                                           16,
                                           40,
                                           -1,
                                           1000,
                                           int64_t{1} << 30,
                                           int64_t{1} << 40,
                                           0.5,
                                           "mean",
                                           nullptr,
                                           json::array({1, 2}),
                                           json::object()};
  json& target = below(random, 4) == 0 ? config : config["cfg"];
  if (!target.is_object()) return;
  const auto chosen =
      std::next(target.begin(), static_cast<std::ptrdiff_t>(below(random, target.size())));
  if (below(random, 8) == 0)
    target.erase(chosen);
  else
    *chosen = values[below(random, values.size())];
}

void mutate(TensorFile& file, Random& random) {
  switch (below(random, 5)) {
    case 0:
      file.tensors.erase(any_of(file.tensors, random));
      break;
    case 1:
      reshape(any_of(file.tensors, random)->second, random);
      break;
    case 2:
      scribble(any_of(file.tensors, random)->second, random);
      break;
    case 3:
      file.tensors[any_of(file.tensors, random)->first] = any_of(file.tensors, random)->second;
      break;
    default:
      json config = json::parse(file.metadata["config"]);
      change_config(config, random);
      file.metadata["config"] = config.dump();
  }
}

TensorFile sample(Random& random) {
  RandomFile plain;
  const char* phis[] = {"mean", "conv", "mlp"};
  plain.cfg["phi"] = phis[below(random, 3)];
  plain.S = 20;
  const bool packed = below(random, 3) == 0;
  plain.B = packed ? 1 : 2;
  plain.kind = packed ? "varlen" : "forward";
  if (packed) plain.cu_seqlens = {0, 3, 3, 20};
  TensorFile file = plain.make();
  const auto expected = oracle_outputs(file, false);
  for (const char* stage : {"block_idx", "ranges", "scores", "k_cmp", "p_cmp"})
    if (below(random, 4) == 0) file.tensors[stage] = expected.at(stage);
  return file;
}

EvalOptions some_options(Random& random) {
  static const std::vector<std::string> ops = {"",       "",       "",         "compress", "scores",
                                               "select", "ranges", "sel_attn", "win_attn", "gate"};
  static const std::vector<std::string> dtypes = {"fp64", "fp32", "bf16", "fp16"};
  static const std::vector<std::string> modes = {"", "batched", "sequential", "decode"};
  EvalOptions options;
  options.op = ops[below(random, ops.size())];
  options.dtype = dtypes[below(random, dtypes.size())];
  if (options.op.empty()) options.mode = modes[below(random, modes.size())];
  options.grad = below(random, 3) == 0;
  return options;
}

/// "evaluated", "refused", or the text of an error that is neither.
std::string outcome_of(const TensorFile& file, const EvalOptions& options) {
  try {
    evaluate(file, options);
    return "evaluated";
  } catch (const nsa::InputError&) {
    return "refused";
  } catch (const std::invalid_argument&) {
    return "refused";
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return text.starts_with("nsa::") ? "refused" : text;
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(EvalMutation, FilesAreEvaluatedOrRefused) {
  at::set_num_threads(1);
  std::printf("seed %u, %d files\n", kSeed, kFiles);
  Random random(kSeed);
  std::map<std::string, int> outcomes;
  for (int i = 0; i < kFiles; ++i) {
    TensorFile file = sample(random);
    for (size_t step = below(random, 3); step-- > 0;) mutate(file, random);
    const EvalOptions options = some_options(random);
    const std::string outcome = outcome_of(file, options);
    ++outcomes[outcome];
    ASSERT_TRUE(outcome == "evaluated" || outcome == "refused")
        << "file " << i << " --op '" << options.op << "' --mode '" << options.mode
        << "': " << outcome << "\n"
        << file.metadata["config"];
  }
  EXPECT_GT(outcomes["evaluated"], kFiles / 5);
  EXPECT_GT(outcomes["refused"], kFiles / 5);
}

}  // namespace
}  // namespace suites::eval
