#include "nsa/train/shard/sharding.h"

#include "nsa/program/input_error.h"

namespace nsa::train {

Sharding sharding_of(const std::string& name) {
  if (name == "none") return Sharding::kNone;
  if (name == "optimizer") return Sharding::kOptimizer;
  if (name == "full") return Sharding::kFull;
  throw InputError("training option shard must be none, optimizer or full, got \"" + name + "\"");
}

}  // namespace nsa::train
