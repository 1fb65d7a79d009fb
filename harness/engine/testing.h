#pragma once
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/testing/paths.h"
#include "harness/engine/engine.h"
#include "harness/evidence/storage/files.h"
#include "harness/schema/read.h"

namespace harness {

/// A run with fake programs in a scratch folder; phases are added by hand.
struct FakeRun {
  explicit FakeRun(const std::string& name) {
    namespace fs = std::filesystem;
    root = fs::temp_directory_path() / ("engine_" + std::to_string(::getpid())) / name;
    fs::remove_all(root);
    fs::create_directories(root / "bin");
    const fs::path built = fs::path(base::build_dir()) / "bin";
    for (const auto* program : {"nsa-worker", "nsa-train"})
      fs::create_symlink(built / "fake_worker", root / "bin" / program);
    fs::create_symlink(built / "fake_tests", root / "bin" / "nsa-tests");
    options.out = root / "run";
    options.bin_dir = root / "bin";
    options.build_id = "b";
    options.environment = {{"build", {{"build_id", "b"}}}};
    // Silence is accepted for longer than a busy machine pauses any process: only a test whose
    // worker hangs shortens it, by hangs_soon().
    options.limits = {.first_step_s = 60, .stall_floor_s = 60, .snapshot_s = 0.05, .grace_s = 0.2};
    runbook.name = plan.runbook = "fake";
    plan.device = "cpu";
  }

  PlannedPhase& add(const std::string& id, const std::string& behaviour, int groups = 1) {
    PlannedPhase phase;
    phase.id = id;
    phase.run = "nsa-worker:fake";
    phase.program = "nsa-worker";
    phase.kind = "fake";
    phase.mode = "time";
    phase.device = "cpu";
    phase.args = {{"behaviour", behaviour}};
    phase.cases = {{.id = "a"}, {.id = "b"}};
    phase.timeout_s = 20;
    for (int i = 1; i <= groups; i++)
      phase.groups.push_back({.id = "g0" + std::to_string(i), .seed = 10 * i});
    plan.phases.push_back(phase);
    runbook.phases.emplace_back().id = id;
    return plan.phases.back();
  }

  /// For a worker that hangs: its silence ends it within half a second.
  void hangs_soon() {
    options.limits.first_step_s = 0.5;
    options.limits.stall_floor_s = 0.4;
  }

  RunReport go() { return run(options, runbook, {}, plan, builtins, observer); }

  std::filesystem::path file(const std::string& path) const { return options.out / path; }
  bool has(const std::string& path) const { return std::filesystem::exists(file(path)); }
  PhaseRecord record(const std::string& phase) const {
    const auto path = file("phases/" + phase + "/phase.json");
    return read_json<PhaseRecord>(read_bytes(path), path);
  }
  /// "STATUS CAUSE" of a recorded phase.
  std::string end_of(const std::string& phase) const {
    const auto found = record(phase);
    return std::string(enum_name(found.status)) + (found.cause.empty() ? "" : " " + found.cause);
  }

  struct Notes : Observer {
    std::vector<std::string> notes, ended;
    int beats = 0;
    void on_note(const std::string& text) override { notes.push_back(text); }
    void on_beat(const PlannedPhase&, const std::string&, const base::protocol::Beat&,
                 double) override {
      beats++;
    }
    void on_phase_end(const PlannedPhase& phase, const PhaseRecord&) override {
      ended.push_back(phase.id);
    }
  };

  std::filesystem::path root;
  RunOptions options;
  Runbook runbook;
  Plan plan;
  Builtins builtins;
  Notes observer;
};

}  // namespace harness
