#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace nsa::train {

/// Where a process stands among the ranks of a run, and where the ranks meet.
struct RankPlace {
  int64_t rank = 0, world = 1;
  int64_t local_rank = 0;              ///< among the ranks of this machine: the index of its GPU
  std::string host;                    ///< of rank 0
  int64_t port = 0;                    ///< there; 0: no rendezvous
  std::string source = "one process";  ///< of these values: torchrun, Slurm, ...
};

/// A variable of the environment, or nothing.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), else
/// of a Slurm step (SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_NODELIST,
/// SLURM_JOB_ID; MASTER_ADDR and MASTER_PORT count there, too). Without either: one process.
/// Throws InputError naming variable and value: world size 0, rank out of range, half a set of
/// variables.
RankPlace read_rank_place(const Variables& variables);

/// Throws InputError when a run is to have `wanted` ranks (0: any number) and has others.
void require_ranks(const RankPlace& place, int64_t wanted);
/// Throws InputError unless groups of `size` ranks (0: all) are all of them.
void require_shard_group(const RankPlace& place, int64_t size);
/// The same of groups of `size` ranks that divide rows among them.
void require_context_ranks(const RankPlace& place, int64_t size);

/// The variables of this process.
std::optional<std::string> environment_variable(const std::string& name);

}  // namespace nsa::train
