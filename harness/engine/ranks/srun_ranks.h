#pragma once
#include <string>
#include <vector>

#include "harness/process/watch.h"

/// Ranks of a phase as steps of the allocation of Slurm that the engine runs in.
namespace harness {

/// Where rank `rank` of `world` runs: ranks are spread over the nodes in equal parts, neighbours
/// together.
struct RankNode {
  std::string node, first_node;  ///< the second has rank 0
  int local_rank = 0;            ///< among the ranks of its node
};
RankNode place_of_rank(const std::vector<std::string>& nodes, int rank, int world);

/// Makes `rank`'s command one that srun starts at `place`, with all variables of Slurm. The folder
/// of the run must be one that all nodes see: the task opens `spec.result` there as descriptor 3.
void start_by_srun(WorkerSpec& spec, const RankNode& place);

}  // namespace harness
