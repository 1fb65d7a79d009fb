#pragma once
#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "harness/process/outcome.h"

namespace harness {

/// Paths of the shared libraries of the product and of LibTorch that a process has mapped; none
/// when it has ended or is not ours.
std::set<std::string> mapped_libraries(pid_t pid);

/// Their names and contents, by name. A file is hashed once as long as it stays the same.
std::vector<LoadedLibrary> identified(const std::set<std::string>& paths);

}  // namespace harness
