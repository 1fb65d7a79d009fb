#include "nsa/train/ranks/rank_place.h"

#include <charconv>
#include <cstdlib>
#include <limits>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

constexpr int64_t kMany = std::numeric_limits<int32_t>::max();
constexpr int64_t kFirstPort = 20000, kPorts = 20000;  ///< of Slurm jobs that name none

int64_t number(const std::string& name, const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw InputError(name + " must be a number in " + std::to_string(least) + ".." +
                     std::to_string(most) + ", got \"" + text + "\"");
  return value;
}

/// Values of a set of variables that belong together.
class Reader {
 public:
  Reader(const Variables& variables, std::string set) : variables_(variables), set_(set) {}
  std::string text(const std::string& name) const {
    const auto value = variables_(name);
    if (!value)
      throw InputError("variable " + name + " is not set, but others of " + set_ +
                       " are; start the ranks with torchrun, srun or nsa-validate");
    return *value;
  }
  int64_t integer(const std::string& name, int64_t least, int64_t most) const {
    return number(name, text(name), least, most);
  }

 private:
  const Variables& variables_;
  std::string set_;
};

/// The first name of a Slurm node list: a1, a1,a2, a[1-3,7], a[01-04]-b.
std::string first_node(const std::string& list) {
  const size_t open = list.find('['), comma = list.find(',');
  if (open == std::string::npos || comma < open) return list.substr(0, comma);
  const size_t close = list.find(']', open);
  const size_t end = list.find_first_of("-,]", open);
  if (close == std::string::npos)
    throw InputError("SLURM_STEP_NODELIST cannot be read: \"" + list + "\"; set MASTER_ADDR");
  const std::string tail = list.substr(close + 1, list.find(',', close) - close - 1);
  return list.substr(0, open) + list.substr(open + 1, end - open - 1) + tail;
}

RankPlace read_torchrun(const Variables& variables) {
  const Reader reader(variables, "torchrun");
  RankPlace place;
  place.source = "torchrun";
  place.world = reader.integer("WORLD_SIZE", 1, kMany);
  place.rank = reader.integer("RANK", 0, place.world - 1);
  place.local_rank =
      variables("LOCAL_RANK") ? reader.integer("LOCAL_RANK", 0, place.world - 1) : place.rank;
  if (place.world == 1) return place;
  place.host = reader.text("MASTER_ADDR");
  place.port = reader.integer("MASTER_PORT", 1, 65535);
  return place;
}

RankPlace read_slurm(const Variables& variables) {
  const Reader reader(variables, "Slurm");
  RankPlace place;
  place.source = "Slurm";
  place.world = reader.integer("SLURM_STEP_NUM_TASKS", 1, kMany);
  place.rank = reader.integer("SLURM_PROCID", 0, place.world - 1);
  place.local_rank = reader.integer("SLURM_LOCALID", 0, place.world - 1);
  if (place.world == 1) return place;
  const auto host = variables("MASTER_ADDR"), port = variables("MASTER_PORT");
  place.host = host ? *host : first_node(reader.text("SLURM_STEP_NODELIST"));
  place.port = port ? number("MASTER_PORT", *port, 1, 65535)
                    : kFirstPort + reader.integer("SLURM_JOB_ID", 0, kMany) % kPorts;
  return place;
}

}  // namespace

RankPlace read_rank_place(const Variables& variables) {
  if (variables("WORLD_SIZE") || variables("RANK")) return read_torchrun(variables);
  if (variables("SLURM_STEP_NUM_TASKS") && variables("SLURM_PROCID")) return read_slurm(variables);
  return {};
}

void require_ranks(const RankPlace& place, int64_t wanted) {
  if (wanted > 0 && wanted != place.world)
    throw InputError("RANK_FAULT: the run is to have " + std::to_string(wanted) +
                     " ranks, it was started with " + std::to_string(place.world) + " (" +
                     place.source + ")");
}

void require_shard_group(const RankPlace& place, int64_t size) {
  if (size > 0 && place.world % size != 0)
    throw InputError("training option shard_group must divide the number of ranks (" +
                     std::to_string(place.world) + "), got " + std::to_string(size));
}

void require_context_ranks(const RankPlace& place, int64_t size) {
  if (place.world % size != 0)
    throw InputError("training option context_ranks must divide the number of ranks (" +
                     std::to_string(place.world) + "), got " + std::to_string(size));
}

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace nsa::train
