// P12, P26, P27, P31: what is wrong with the machine, the build or the change, injected in
// temporary folders and processes.
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <functional>
#include <thread>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/fault_injection/faults/faults.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/run_alone.h"
#include "harness/preflight/leftovers.h"
#include "harness/process/os/proc_scan.h"
#include "harness/provenance/build/build_id.h"
#include "harness/provenance/build/elf_note.h"
#include "harness/provenance/capture.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"

namespace harness::injection {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

/// Failed checks with `code`, joined; empty: none.
std::string failures(const base::protocol::Transcript& transcript, const std::string& code) {
  std::string text;
  for (const auto& line : transcript.lines)
    if (const auto* check = std::get_if<base::protocol::Check>(&line.message);
        check != nullptr && !check->ok && check->code == code)
      text += (text.empty() ? "" : "; ") + check->id + ": " + check->detail;
  return text.substr(0, 200);
}

void git(const fs::path& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"git", "-C", folder.string(), "-c", "user.name=selftest", "-c",
                    "user.email=selftest@localhost", "-c", "commit.gpgsign=false"});
  CaptureOptions options;
  options.with_stderr = true;
  if (const Captured result = capture(arguments, options); !result.ok())
    throw Error("git " + arguments[9] + " failed: " + result.problem + result.out);
}

void put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  write_bytes(file, text);
}

/// A checkout with one commit, and programs that were built from it.
struct SmallCheckout {
  explicit SmallCheckout(const fs::path& root, const fs::path& worker)
      : sources(root / "sources"), bin(root / "bin") {
    put(sources / "CMakeLists.txt", "project(small)\n");
    put(sources / "nsa/a.cpp", "int a;\n");
    put(sources / "harness/b.cpp", "int b;\n");
    put(sources / "suites/compare/tolerance.cpp", "1e-5\n");
    git(sources, {"init", "--quiet", "--initial-branch=main"});
    commit("first");
    build(worker);
  }
  void commit(const std::string& text) const {
    git(sources, {"add", "--all"});
    git(sources, {"commit", "--quiet", "--message", text});
  }
  void build(const fs::path& worker) const {
    fs::create_directories(bin);
    if (fs::exists(worker)) fs::create_symlink(fs::absolute(worker), bin / "nsa-worker");
    fs::copy_file("/proc/self/exe", bin / "program");
    BuildId id;
    id.files = hash_sources(sources);
    id.id = build_id_of(id.files, id.compiler, id.flags);
    add_program(id, bin, "program");
    if (fs::exists(bin / "nsa-worker")) add_program(id, bin, "nsa-worker");
    write_bytes(bin / "build_id.json", pretty_dump(to_json(id)));
  }
  fs::path sources, bin;
};

using Change = std::function<void(const SmallCheckout&)>;

/// Failed provenance checks of the environment phase on a small checkout after `change`.
std::string provenance_after(const SelftestSetup& setup, const Change& change) {
  const TempDir dir;
  const SmallCheckout checkout(dir.path(), setup.bin_dir / "nsa-worker");
  change(checkout);
  fs::create_directories(dir / "run");
  return failures(run_alone(dir / "run/raw.jsonl", json::object(),
                            [&](const BuiltinCall& call, base::protocol::Emitter& emitter) {
                              run_environment(checkout.bin, checkout.sources, call, emitter);
                            }),
                  "PROVENANCE_MISMATCH");
}

Injected all_named(const std::vector<std::pair<std::string, std::string>>& wanted_and_seen) {
  Injected result{.as_wanted = true, .seen = ""};
  for (const auto& [wanted, seen] : wanted_and_seen) {
    result.as_wanted &= seen.find(wanted) != std::string::npos;
    result.seen +=
        (result.seen.empty() ? "" : "; ") + wanted + ": " + (seen.empty() ? "not seen" : seen);
  }
  return result;
}

std::string scope_after(const Change& change) {
  const TempDir dir;
  const SmallCheckout checkout(dir.path(), "");
  git(checkout.sources, {"checkout", "--quiet", "-b", "change"});
  change(checkout);
  const json args = {{"base", "main"},
                     {"paths", {"nsa/*", "suites/*"}},
                     {"guarded", {"suites/compare/tolerance*"}}};
  return failures(run_alone(dir / "raw.jsonl", args,
                            [&](const BuiltinCall& call, base::protocol::Emitter& emitter) {
                              run_diff_scope(checkout.sources, call, emitter);
                            }),
                  "DIFF_OUT_OF_SCOPE");
}

void change_in_scope(const SmallCheckout& c) {
  put(c.sources / "nsa/a.cpp", "int a = 1;\n");
  c.commit("in scope");
}

/// A process that an engine which is gone has left behind; ended with the object.
class Leftover {
 public:
  explicit Leftover(const fs::path& run) : pid_(::fork()) {
    if (pid_ != 0) return;
    const std::string marker = std::string(kGroupVariable) + "=" + run.string() + "|phase/g01";
    const char* argv[] = {"sleep", "60", nullptr};
    const char* env[] = {marker.c_str(), nullptr};
    ::execve("/bin/sleep", const_cast<char**>(argv), const_cast<char**>(env));
    ::_exit(127);
  }
  ~Leftover() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Leftover(const Leftover&) = delete;
  Leftover& operator=(const Leftover&) = delete;

  /// After exec the environment is the injected one.
  void await() const {
    for (int i = 0; i < 200 && group_marker(pid_).find('|') == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::string name() const { return "pid " + std::to_string(pid_); }

 private:
  pid_t pid_;
};

}  // namespace

/// An older program, sources newer than the build, and files that differ from the commit.
Injected inject_foreign_programs(const SelftestSetup& setup) {
  const std::string program = provenance_after(setup, [](const SmallCheckout& c) {
    fs::copy_file("/bin/true", c.bin / "program", fs::copy_options::overwrite_existing);
  });
  const std::string sources = provenance_after(setup, [](const SmallCheckout& c) {
    put(c.sources / "nsa/a.cpp", "int a = 1; // the fix\n");
    c.commit("the fix");
  });
  const std::string dirty = provenance_after(
      setup, [](const SmallCheckout& c) { put(c.sources / "notes.md", "uncommitted\n"); });
  return all_named({{"program", program}, {"nsa/a.cpp", sources}, {"notes.md", dirty}});
}

Injected control_own_programs(const SelftestSetup& setup) {
  const std::string seen = provenance_after(setup, [](const SmallCheckout&) {});
  return {seen.empty(), seen.empty() ? "programs of this checkout: nothing reported" : seen};
}

Injected inject_mixed_diff(const SelftestSetup&) {
  const std::string mixed = scope_after([](const SmallCheckout& c) {
    put(c.sources / "harness/b.cpp", "int b = 1;\n");
    change_in_scope(c);
  });
  const std::string tolerance = scope_after([](const SmallCheckout& c) {
    put(c.sources / "suites/compare/tolerance.cpp", "1e-2\n");
    change_in_scope(c);
  });
  return all_named({{"harness/b.cpp", mixed}, {"suites/compare/tolerance.cpp", tolerance}});
}

Injected control_plain_diff(const SelftestSetup&) {
  const std::string seen = scope_after(change_in_scope);
  return {seen.empty(), seen.empty() ? "a change within its scope: nothing reported" : seen};
}

Injected inject_leftovers(const SelftestSetup&) {
  const TempDir dir;
  fs::create_directories(dir / "earlier");
  write_bytes(dir / "earlier/STOP", "");
  write_bytes(dir / "earlier/results.json.part", "{");
  const Leftover process(dir / "earlier");
  process.await();
  const std::string found = stale_leftovers(dir.path());
  return all_named({{"STOP", found}, {"results.json.part", found}, {process.name(), found}});
}

Injected control_empty_folder(const SelftestSetup&) {
  const TempDir dir;
  const std::string found = stale_leftovers(dir.path());
  return {found.find(dir.path().string()) == std::string::npos,
          found.empty() ? "an empty folder: nothing" : found};
}

}  // namespace harness::injection
