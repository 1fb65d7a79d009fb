#include "harness/engine/ranks/srun_ranks.h"

#include <unistd.h>

#include <algorithm>

namespace harness {

RankNode place_of_rank(const std::vector<std::string>& nodes, int rank, int world) {
  const int count = static_cast<int>(nodes.size());
  const auto node_of = [&](int one) { return one * std::min(count, world) / world; };
  int local = 0;
  while (local < rank && node_of(rank - local - 1) == node_of(rank)) ++local;
  return {nodes[static_cast<size_t>(node_of(rank))], nodes.front(), local};
}

void start_by_srun(WorkerSpec& spec, const RankNode& place) {
  std::vector<std::string> argv = {"/usr/bin/env",
                                   "srun",
                                   "--quiet",
                                   "--overlap",
                                   "--nodes=1",
                                   "--ntasks=1",
                                   "--nodelist=" + place.node,
                                   "--export=ALL",
                                   "/bin/sh",
                                   "-c",
                                   "exec 3>> \"$1\"; shift; exec \"$@\"",
                                   "rank",
                                   spec.result.string()};
  argv.insert(argv.end(), spec.argv.begin(), spec.argv.end());
  spec.argv = std::move(argv);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t end = text.find('=');
    if (text.starts_with("SLURM_") && end != std::string::npos)
      spec.env.try_emplace(text.substr(0, end), text.substr(end + 1));
  }
  spec.env["MASTER_ADDR"] = place.first_node;
  spec.env["LOCAL_RANK"] = std::to_string(place.local_rank);
}

}  // namespace harness
