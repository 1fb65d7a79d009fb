#include "harness/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <fstream>

#include "base/protocol/lines.h"
#include "harness/engine/testing.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

template <class E>
std::string text_of(FakeRun& run) {
  try {
    run.go();
  } catch (const E& e) {
    return e.what();
  }
  return "no such error";
}

TEST(Engine, LeavesTheFolderOfTheContract) {
  FakeRun run("layout");
  run.add("one", "normal", 2);
  const auto report = run.go();
  EXPECT_EQ(report.signal, 0);
  ASSERT_EQ(report.phases.size(), 1u);
  EXPECT_EQ(run.end_of("one"), "COMPLETED") << run.record("one").reason;
  for (const auto* path :
       {"run.json", "runbook.json", "kinds.json", "plan.json", "environment.json",
        "phases/one/phase.json", "phases/one/g01.jsonl", "phases/one/g02.jsonl",
        "phases/one/g01.out", "phases/one/g01.err", "phases/one/g01.json", "phases/one/out"})
    EXPECT_TRUE(run.has(path)) << path;
  const auto info = read_json<RunInfo>(read_bytes(run.file("run.json")), "run.json");
  EXPECT_TRUE(info.id.starts_with("fake-2")) << info.id;
  EXPECT_EQ(info.runbook_sha256.size(), 64u);
  EXPECT_EQ(run.record("one").attempts, 1);
  EXPECT_EQ(run.observer.beats, 12);
}

TEST(Engine, LeftoversAreNamedBeforeTheStart) {
  FakeRun run("leftovers");
  run.add("one", "normal");
  fs::create_directories(run.options.out);
  std::ofstream(run.options.out / "STOP") << "1";
  std::ofstream(run.options.out / "old.json") << "1";
  EXPECT_THAT(text_of<ConfigError>(run),
              HasSubstr("is not empty: it holds STOP, old.json; use --resume"));
  EXPECT_FALSE(run.has("phases"));
  run.options.out = "/proc/nothing/here";
  EXPECT_THAT(text_of<Error>(run), HasSubstr("cannot create /proc/nothing/here"));
}

TEST(Engine, OneEngineAFolder) {
  FakeRun run("lock");
  run.add("one", "normal");
  std::string other;
  auto& phase = run.add("inside", "");
  phase.program = "builtin";
  phase.kind = "again";
  run.builtins["again"] = [&](const BuiltinCall& call, base::protocol::Emitter& emitter) {
    FakeRun second("lock_second");
    second.options.out = run.options.out;
    second.options.resume = true;
    other = text_of<Error>(second);
    for (const auto& one : call.in.cases) emitter.end_case(one.id);
  };
  run.go();
  EXPECT_THAT(other, HasSubstr("another engine works in"));
}

double own_cpu_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec);
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

/// What the engine adds to what workers take: processor time of its own with a process a phase, and
/// wall time with none. Both are printed; a busy machine and a slow disk do not decide the first,
/// which is held to the 50 ms that are allowed.
TEST(Engine, CostsLittlePerPhase) {
  constexpr int kPhases = 10;
  FakeRun run("overhead");
  for (int i = 0; i < kPhases; i++) run.add("p" + std::to_string(i), "normal");
  const double before = own_cpu_ms();
  run.go();
  const double cpu_ms = (own_cpu_ms() - before) / kPhases;

  FakeRun alone("overhead_alone");
  for (int i = 0; i < kPhases; i++) alone.add("p" + std::to_string(i), "none");
  alone.options.resident = [](const std::string& line, const std::filesystem::path& result) {
    base::protocol::Emitter emitter(result);
    emitter.hello({.program = "nsa-worker", .build_id = "b"});
    for (const auto& one : base::protocol::parse_case(line).cases) emitter.end_case(one.id);
    emitter.done();
  };
  const auto start = std::chrono::steady_clock::now();
  alone.go();
  const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - start;
  std::printf("engine: %.1f ms of processor time a phase, %.1f ms of wall time without a worker\n",
              cpu_ms, wall.count() / kPhases);
  EXPECT_LT(cpu_ms, 50);
}

}  // namespace
}  // namespace harness
