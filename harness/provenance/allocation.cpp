#include "harness/provenance/allocation.h"

#include <cstdlib>
#include <sstream>

#include "harness/provenance/capture.h"

namespace harness {

std::vector<std::string> allocated_nodes() {
  const char* list = std::getenv("SLURM_JOB_NODELIST");
  if (list == nullptr) return {};
  const Captured names = capture({"scontrol", "show", "hostnames", list});
  if (!names.ok()) return {};
  std::vector<std::string> nodes;
  std::istringstream in(names.out);
  for (std::string node; in >> node;) nodes.push_back(node);
  return nodes;
}

}  // namespace harness
