#include "harness/runbook/checks/check_phase.h"

#include "harness/runbook/checks/check_testing.h"

namespace harness {
namespace {

class BadPhase : public testing::TestWithParam<BadInput> {};

TEST_P(BadPhase, IsRejectedByName) { expect_runbook_refused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Phases, BadPhase,
    testing::Values(
        BadInput{"\"id\": \"second\"", "\"id\": \"Second|\"", "must be lower case"},
        BadInput{"nsa-worker:ranges_ab", "nsa-worker:range_ab",
                 "no phase kind 'range_ab' (configs/kinds); did you mean 'ranges_ab'?"},
        BadInput{"nsa-worker:ranges_ab", "builtin:ranges_ab", "runs in nsa-worker, not in builtin"},
        BadInput{"nsa-worker:ranges_ab", "nsa-wroker:ranges_ab", "did you mean 'nsa-worker'?"},
        BadInput{"nsa-worker:ranges_ab", "nsa-worker", "must be builtin:NAME"},
        BadInput{"nsa-worker:ranges_ab", "nsa-tests:", "must be builtin:NAME"},
        BadInput{"nsa-worker:ranges_ab", "nsa-train:x", "must be builtin:NAME"},
        BadInput{"\"rounds\": 2", "\"ruonds\": 2",
                 "19:16: second.args: kind 'ranges_ab' declares no argument 'ruonds'; did you mean "
                 "'rounds'?"},
        BadInput{"\"rounds\": 2", "\"rounds\": \"2\"",
                 "second.args.rounds must be an int, got '\"2\"'"},
        BadInput{"{\"rounds\": 2}", "[]", "second.args must be an object"},
        BadInput{"{\"S\": 64}", "{\"Z\": 64}", "second.small.args"},
        BadInput{"\"id\": \"small\"", "\"id\": \"../small\"", "case id '../small'"},
        BadInput{"\"args\": {\"S\": 64}}", "\"args\": {\"S\": 64}}, {\"id\": \"small\"}",
                 "case 'small' is given twice in phase 'second'"},
        BadInput{"\"free\": [\"B\"]", "\"free\": [\"Q\"]", "free names no argument 'Q'"},
        BadInput{"\"gpu.free_mib\"", "\"gpu.free\"", "did you mean 'gpu.free_mib'?"},
        BadInput{"\">=0\"", "\"lots\"", "comparison like"},
        BadInput{"\"processes\": 8", "\"processes\": 1000", "processes must be 1 to 999, got 1000"},
        BadInput{"\"processes\": 8", "\"processes\": 0", "processes must be 1 to 999, got 0"},
        BadInput{"\"processes\": 8", "\"timeout_s\": 0", "timeout_s must be 0.001 to"},
        BadInput{"\"processes\": 8", "\"minutes\": -1", "minutes must not be negative"},
        BadInput{"\"processes\": 8", "\"device\": \"gpu\"", "device must be one of cpu, cuda"},
        BadInput{"\"processes\": 8", "\"launcher\": \"mpirun\"",
                 "launcher must be one of engine, srun, got 'mpirun'"},
        BadInput{"\"processes\": 8", "\"launcher\": \"srun\"", "set args.ranks to 2 or more"},
        BadInput{"\"processes\": 8", "\"retries\": -1", "retries must be 0 to 10, got -1"},
        BadInput{"\"processes\": 8", "\"retries\": 11", "retries must be 0 to 10, got 11"},
        BadInput{"\"processes\": 8", "\"timeout_s\": 1e308", "timeout_s must be 0.001 to 1000000"},
        BadInput{"\"processes\": 8", "\"timeout_s\": 1e-300", "timeout_s must be 0.001 to 1000000"},
        BadInput{"\"processes\": 8", "\"timeout_s\": 9223372036854775808",
                 "timeout_s must be 0.001 to 1000000"},
        BadInput{"\"processes\": 8", "\"timeout_s\": -1", "timeout_s must be 0.001 to 1000000"},
        BadInput{"\"processes\": 8", "\"timeout_s\": 1000001",
                 "timeout_s must be 0.001 to 1000000"},
        BadInput{"\"processes\": 8", "\"artifacts\": [\".\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 8", "\"artifacts\": [\"./\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 8", "\"artifacts\": [\"x/\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 8", "\"artifacts\": [\"x/..\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 8", "\"artifacts\": [\"a\\u001b[31m\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 8", "\"artifacts\": [\"a\\u0000b\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 8", "\"artifacts\": [\"a\\u009bm\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 8", "\"artifacts\": [\"../x\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 8", "\"artifacts\": [\"a/../../x\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 8", "\"artifacts\": [\"/x\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 8", "\"artifacts\": [\"\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 8", "\"switches\": {\"NSA_\": \"x\"}", "must be an NSA_* name"},
        BadInput{"\"processes\": 8", "\"switches\": {\"PATH\": \"x\"}", "must be an NSA_* name"},
        BadInput{"\"processes\": 8", "\"switches\": {\"NSA_X\": \"a\\u0000b\"}", "holds a NUL"}));

INSTANTIATE_TEST_SUITE_P(
    Stages, BadPhase,
    testing::Values(
        BadInput{"\"processes\": 8", "\"processes\": 10, \"max_processes\": 19",
                 "must leave room for one doubling of processes (20 to 999), got 19"},
        BadInput{"\"processes\": 8", "\"processes\": 10, \"max_processes\": -1", "got -1"},
        BadInput{"\"processes\": 8", "\"processes\": 10, \"max_processes\": 1000", "got 1000"},
        BadInput{"\"processes\": 8", "\"processes\": 8, \"max_processes\": 16",
                 "too few to decide anything in one of 2 looks at 99 % together, got 8"},
        BadInput{"\"processes\": 8", "\"processes\": 2, \"confirm\": true", "too few"},
        BadInput{"\"run\": \"nsa-worker:ranges_equivalence\",",
                 "\"run\": \"nsa-worker:ranges_equivalence\", \"confirm\": true,",
                 "kind 'ranges_equivalence' declares no paired figure"}));

/// What lies just inside the bounds of the rows above.
TEST(GoodPhase, BoundsAreInclusive) {
  const TempConfigs configs;
  for (const char* to :
       {"\"processes\": 8", "\"processes\": 8, \"retries\": 0", "\"processes\": 8, \"retries\": 10",
        "\"processes\": 8, \"minutes\": 0", "\"processes\": 8, \"artifacts\": [\"a/../x\"]",
        "\"processes\": 8, \"switches\": {\"NSA_X\": \"x\"}", "\"processes\": 8, \"confirm\": true",
        "\"processes\": 9, \"max_processes\": 18", "\"processes\": 499, \"max_processes\": 999",
        "\"processes\": 999"})
    EXPECT_EQ(configs.error_of(with(minimal_text(), "\"processes\": 8", to)), "no error") << to;
}

}  // namespace
}  // namespace harness
