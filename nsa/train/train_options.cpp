#include "nsa/train/train_options.h"

#include <algorithm>
#include <type_traits>

#include "nsa/program/strict_json.h"
#include "nsa/train/data/corpus_folder.h"

namespace nsa::train {
namespace {

void require(bool ok, std::string_view name, const std::string& want, const std::string& have) {
  if (!ok)
    throw InputError("training option " + std::string(name) + " must be " + want + ", got " + have);
}

/// Holds one option to its description. An empty text leaves the choice to the program.
struct Validator {
  const TrainOptions& options;

  template <class T>
  void operator()(const base::OptionDoc& option, T TrainOptions::* member) {
    const T& value = options.*member;
    const std::string bounds = base::bounds_of(option);
    if constexpr (std::is_same_v<T, std::string>) {
      if (!option.choices.empty() && (!value.empty() || !(TrainOptions().*member).empty()))
        require(std::ranges::count(base::words_of(option.choices), value) > 0, option.name,
                std::string(option.choices), "\"" + value + "\"");
    } else if constexpr (std::is_same_v<T, double>) {
      if (!bounds.empty())
        require(base::is_within(option, value) && value < 1e30, option.name, "finite and " + bounds,
                std::to_string(value));
    } else if constexpr (std::is_same_v<T, int64_t>) {
      if (!bounds.empty())
        require(base::is_within(option, static_cast<double>(value)), option.name, bounds,
                std::to_string(value));
    }
  }
};

/// Takes the value of each option out of a JSON object.
struct ArgumentReader {
  StrictObject& object;
  TrainOptions& options;

  template <class T>
  void operator()(const base::OptionDoc& option, T TrainOptions::* member) {
    options.*member = object.optional(std::string(option.name), options.*member);
  }
};

}  // namespace

std::filesystem::path TrainOptions::corpus_dir() const { return corpus_folder(data_root, data); }

void TrainOptions::validate() const {
  Validator validator{*this};
  describe(validator);
  require(schedule_steps == 0 || schedule_steps >= steps, "schedule_steps",
          "0 or >= steps (" + std::to_string(steps) + ")", std::to_string(schedule_steps));
  require(validate_every == 0 || !is_synthetic(), "validate_every",
          "0 where data is synthetic: random tokens have no kept-out part",
          std::to_string(validate_every));
  require(!eval || sample.empty(), "eval", "false where sample is given", "true");
  require(!eval || !is_synthetic(), "eval",
          "false where data is synthetic: random tokens have no kept-out part", "true");
  require(!checkpoints.empty() || (checkpoint_every == 0 && !resume && slice_steps == 0),
          "checkpoints", "a folder where checkpoint_every, resume or slice_steps is given", "\"\"");
  require(memory_limit_mib == 0 || device == "cpu", "memory_limit_mib",
          "0 where the device is not the CPU", std::to_string(memory_limit_mib));
  require(shard_group == 0 || shard == "full", "shard_group", "0 unless shard is full",
          std::to_string(shard_group));
  require(min_lr <= lr, "min_lr", "<= lr (" + std::to_string(lr) + ")", std::to_string(min_lr));
  require(!model.empty(), "model", "a name or a file", "\"\"");
  require(!data.empty(), "data", "a corpus name or synthetic", "\"\"");
}

void apply_args(const nlohmann::json& args, const std::string& where, TrainOptions& options) {
  StrictObject object(args, where);
  ArgumentReader reader{object, options};
  TrainOptions::describe(reader);
  for (const char* engine_key : {"first_step_s", "rate_floor"}) object.ignore(engine_key);
  object.finish();
}

}  // namespace nsa::train
