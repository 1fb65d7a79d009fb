#include "suites/phases/program_folder.h"

namespace suites {

std::filesystem::path program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

}  // namespace suites
