#include "harness/cli/commands/commands.h"

namespace harness::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"run", "", "", "", run_command},
      {"list", "Runbooks, their phases and the hardware they want",
       "  nsa-validate list\n  nsa-validate list smoke_cpu\n  nsa-validate list --json | jq "
       "'.[].name'\n",
       "0, 2 a runbook is wrong", list_command},
      {"plan", "Order, cases, minutes, and which criteria this machine can decide",
       "  nsa-validate plan --runbook single_gpu\n"
       "  nsa-validate plan --runbook smoke_cpu --set train_text.steps=50\n",
       "0, 5 a run here would be undecided, 8 PARTIAL, 2 usage or a switch that would be refused",
       plan_command},
      {"doctor", "Basic facts of this machine and what is missing on it", "  nsa-validate doctor\n",
       "0 nothing stands in the way, 3 something does", doctor_command},
      {"baseline", "Reviewed figures that criteria refer to",
       "  nsa-validate baseline promote runs/single_gpu-TIME --reason \"first release\"\n",
       "those of the subcommand (baseline promote --help)", nullptr},
      {"baseline promote",
       "Show the baseline that a run would set for its hardware; --write writes it",
       "  nsa-validate baseline promote runs/single_gpu-TIME --reason \"first release\"\n"
       "  nsa-validate baseline promote runs/single_gpu-TIME --reason \"first release\" --write\n",
       "0 shown or written, 2 not a run that can set one, 6 the run does not verify",
       baseline_promote_command},
      {"history", "Figures of earlier runs: a cache over run folders and tars",
       "  nsa-validate history import runs/*\n"
       "  nsa-validate history trend train_text.speed.rate_tok_s\n",
       "those of the subcommand (history trend --help)", nullptr},
      {"history import", "Take in runs that verify", "  nsa-validate history import runs/*\n",
       "0, 6 a run does not verify (the others are taken in)", history_import_command},
      {"history list", "Runs that were taken in",
       "  nsa-validate history --db /tmp/h.sqlite list\n", "0, 3 fault", history_list_command},
      {"history trend", "One figure over time, and where it stepped",
       "  nsa-validate history trend train_text.speed.rate_tok_s\n", "0, 2 no run has that figure",
       history_trend_command},
      {"selftest", "Inject the historical faults and require that each is reported",
       "  nsa-validate selftest\n  nsa-validate selftest --faults P03,P11\n",
       "0 every fault was reported, 1 one was not, others as a run's", selftest_command},
      {"witnesses", "How each criterion of the shipped runbooks was seen to fail",
       "  nsa-validate witnesses\n",
       "0 each one was, 1 those that were not are listed, 2 a file is wrong", witnesses_command,
       false},
      {"ab-rate", "Count the results of the A/B procedure for an A/B phase over many runs",
       "  nsa-validate ab-rate --runbook ab_rate_cpu --out equal.jsonl\n"
       "  nsa-validate ab-rate --runbook ab_rate_cpu --set ab.slowdown_pct=15 --out "
       "slower.jsonl\n",
       "0 counted, 2 usage, 3 a run has no verdict, 130/143 interrupted (call it again)",
       ab_rate_command, false},
      {"verify", "Check hashes, derive figures, verdict and reports again, compare bytes",
       "  nsa-validate verify runs/smoke_cpu-TIME\n"
       "  nsa-validate verify run.tar --head 6b350ac5...   nothing changed since it was printed\n",
       "0 everything follows from the evidence, 6 it does not", verify_command},
      {"explain", "Formula, samples and files behind an id of a report",
       "  nsa-validate explain C-equivalence.v2\n"
       "  nsa-validate explain run.tar M-train_text.speed.rate_tok_s\n",
       "0, 2 no such run or id (the nearest is named), 6 results are damaged", explain_command},
      {"report", "Render a run again with this version; its raw evidence stays as it is",
       "  nsa-validate report runs/smoke_cpu-TIME\n"
       "  nsa-validate report run.tar                      into the folder run, beside it\n",
       "0 rendered, 6 the evidence was changed", report_command},
      {"compare", "Two finished runs, or two reports of Google Benchmark: figure by figure",
       "  nsa-validate compare runs/before runs/after\n"
       "  nsa-validate compare old.json new.json           of --benchmark_out, with intervals\n",
       "0 compared, 1 a benchmark is lost or failed, 2 different hardware, 6 one of them was "
       "changed",
       compare_command},
      {"ingest", "A report of Google Benchmark or GoogleTest: figures with intervals, what failed",
       "  nsa-validate ingest bench.json                   of --benchmark_out=bench.json\n"
       "  nsa-validate ingest tests.json                   of --gtest_output=json:tests.json\n",
       "0 all passed, 1 something failed or was skipped, 3 no such report", ingest_command},
      {"why", "Why a step of one run is slower than one of another: by kernel, range and pause",
       "  nsa-validate why runs/before runs/after\n"
       "  nsa-validate why runs/before runs/after --out why     why/why.md with a waterfall plot\n",
       "0 explained, 5 not decidable, 2 no profile or other work, 6 one of them was changed",
       why_command},
      {"bisect", "The commit that turned a criterion: builds, runs and judges commits in between",
       "  nsa-validate bisect v1.0 HEAD --criterion C-speed.forward\n"
       "  nsa-validate bisect HEAD~40 HEAD --criterion C-operators.mismatch --runbook smoke_cpu\n",
       "0 found, 5 not decidable, 2 GOOD or BAD is not as claimed, 3 git failed", bisect_command},
      {"bundle", "Pack a run folder into one deterministic tar",
       "  nsa-validate bundle runs/smoke_cpu-TIME --out run.tar.gz\n"
       "  nsa-validate bundle --in-place reports/samples/smoke_cpu\n",
       "0 packed (its sha256 is printed), 6 the run does not verify, 3 fault", bundle_command},
      {"schema", "JSON Schema of a file this program reads or writes",
       "  nsa-validate schema runbook > runbook.schema.json\n"
       "  nsa-validate schema runbook --page\n",
       "0, 2 no such document", schema_command, false}};
  return all;
}

}  // namespace harness::cli
