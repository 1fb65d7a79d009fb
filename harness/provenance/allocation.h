#pragma once
#include <string>
#include <vector>

namespace harness {

/// Names of the nodes of the allocation of Slurm that this process is in, in their order; none
/// outside of one, or where Slurm does not name them.
std::vector<std::string> allocated_nodes();

}  // namespace harness
