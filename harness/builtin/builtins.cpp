#include "harness/builtin/builtins.h"

#include "harness/provenance/git.h"

namespace harness {

Builtins builtin_phases(std::filesystem::path bin_dir) {
  if (bin_dir.empty()) bin_dir = program_folder();
  return {{"environment",
           [bin_dir](const BuiltinCall& call, protocol::Emitter& emitter) {
             run_environment(bin_dir, call, emitter);
           }},
          {"selftest", [bin_dir](const BuiltinCall& call, protocol::Emitter& emitter) {
             run_selftest(bin_dir, call, emitter);
           }}};
}

}  // namespace harness
