#include "nsa/train/run_report.h"

#include "nsa/train/memory/memory_report.h"
#include "nsa/train/record/run_lines.h"

namespace nsa::train {
namespace {

/// Which backend every stage asked for and ran, all layers and steps together.
void report_paths(const EndedRun& run, RunFacts& facts) {
  if (run.trainer == nullptr) return;
  for (const RanBackend& row : run.trainer->ran())
    facts.paths.push_back(
        {row.stage, run.attention.requested(row), row.backend, row.detail, row.reason, row.count});
  const GraphUse graph = run.trainer->graph_use();
  facts.by_graph = graph.captured;
  facts.paths.push_back(step_path(run.options.cuda_graph, graph, run.trainer->steps_done()));
  emit_paths(*run.context.lines, run.context.case_id, facts.paths);
}

/// The parts of the prediction beside what the tensors took.
void report_memory(const EndedRun& run, RunFacts& facts) {
  const MemoryPlan plan = run.shape.seq_len > 1 ? plan_memory(run.config, run.shape) : MemoryPlan{};
  facts.memory = memory_figures(plan, run.tensors_peak_mib,
                                facts.stopped.empty() ? "no step was done" : facts.stopped);
  emit_memory(*run.context.lines, run.context.case_id, plan, run.tensors_peak_mib,
              facts.rank_peaks_mib);
}

}  // namespace

std::vector<Finding> report_run(const EndedRun& run, RunFacts& facts) {
  ResultLines& lines = *run.context.lines;
  const std::string& id = run.context.case_id;
  report_paths(run, facts);
  if (run.options.shard != "full") emit_buckets(lines, id, facts, run.options.reducer);
  report_memory(run, facts);
  emit_context_traffic(lines, id, run.context_traffic);
  emit_expected(lines, id, run.config);
  const Judgement judgement = judge(run.options, facts, run.trace);
  for (const Figure& figure : judgement.figures) {
    lines.metric(id, figure);
    if (figure.value && figure.unit == "nat")
      run.context.print(figure.name + " " + std::to_string(*figure.value));
  }
  for (const Check& check : judgement.checks) lines.check(id, check);
  return judgement.findings;
}

}  // namespace nsa::train
