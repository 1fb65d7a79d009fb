/// nsa-build-id: writes build_id.json at the end of a build. Called by CMake.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "harness/evidence/storage/files.h"
#include "harness/provenance/build/build_id.h"
#include "harness/provenance/build/git.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string source, out, compiler, flags, installed;
  std::vector<std::string> programs;
};

std::string describe_build(const Options& options) {
  harness::BuildId id;
  id.compiler = options.compiler;
  id.flags = options.flags;
  id.files = harness::hash_sources(options.source);
  id.id = harness::build_id_of(id.files, id.compiler, id.flags);
  const fs::path folder = fs::absolute(options.out).parent_path();
  for (const std::string& program : options.programs)
    harness::add_program(id, folder,
                         fs::absolute(program).lexically_relative(folder).generic_string());
  harness::keep_known_programs(id, folder);
  const harness::GitFacts git = harness::git_facts(options.source);
  id.commit = git.commit;
  id.dirty = git.dirty;
  return harness::pretty_dump(to_json(id));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes build_id.json: what the programs beside it were built from.");
  Options options;
  auto* installed = app.add_option("--installed", options.installed,
                                   "only record again the contents of the programs in this folder");
  app.add_option("--source", options.source, "root of the checkout")->excludes(installed);
  app.add_option("--out", options.out, "file to write")->excludes(installed);
  app.add_option("--compiler", options.compiler, "name and version");
  app.add_option("--flags", options.flags,
                 "everything that changes the programs besides the sources");
  app.add_option("programs", options.programs, "programs and libraries of the build");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!options.installed.empty()) return harness::refresh_contents(options.installed), 0;
    if (options.source.empty() || options.out.empty())
      throw harness::ConfigError("give --source and --out, or --installed");
    const std::string text = describe_build(options);
    const bool same = fs::exists(options.out) && harness::read_bytes(options.out) == text;
    if (!same) harness::write_bytes(options.out, text);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "nsa-build-id: " << e.what() << "\n";
    return 3;
  }
}
