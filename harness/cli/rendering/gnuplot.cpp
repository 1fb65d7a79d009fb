#include "harness/cli/rendering/gnuplot.h"

#include <filesystem>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/provenance/capture.h"
#include "reports/plots/svg.h"

namespace harness::cli {
namespace fs = std::filesystem;
namespace {

constexpr double kSeconds = 60;

/// Labels are plain text (noenhanced, no comment character), numbers are in the C locale.
std::string common_commands(int height) {
  const std::string colour = "\"" + std::string(reports::kTextColour) + "\"";
  return "reset\nset encoding utf8\nset datafile separator \"\\t\"\n"
         "set datafile commentschars \"\"\nset datafile missing \"NaN\"\n"
         "set terminal svg size 840," +
         std::to_string(height) +
         " dynamic noenhanced font \"DejaVu Sans,13\"\n"
         "set border 3 lc rgb " +
         colour + "\nset tics nomirror textcolor rgb " + colour +
         "\nset grid lc rgb \"#8a8a8a\" lw 0.5\nset key textcolor rgb " + colour +
         "\nset xlabel textcolor rgb " + colour + "\nset ylabel textcolor rgb " + colour + "\n";
}

std::string commands(const reports::Plot& plot, const std::string& file) {
  std::string script = plot.script;
  for (size_t at = script.find("DATA"); at != std::string::npos; at = script.find("DATA", at))
    script.replace(at, 4, "\"" + file + ".tsv\"");
  return common_commands(plot.height) + "set output \"" + file + ".svg\"\n" + script +
         "unset output\n";
}

/// Runs scripts in `folder`, where files are called 0, 1, ...: no text of a run becomes a name.
bool run_gnuplot(const std::string& program, const fs::path& folder, const std::string& script) {
  write_bytes(folder / "plots.gp", script);
  CaptureOptions options;
  options.timeout_s = kSeconds;
  options.env = {{"LC_ALL", "C.UTF-8"}};
  return capture({"sh", "-c", "cd \"$1\" && exec \"$2\" -d plots.gp </dev/null", "sh",
                  folder.string(), program},
                 options)
      .ok();
}

}  // namespace

reports::html::Drawings draw(const std::vector<reports::Plot>& plots, const std::string& program) {
  reports::html::Drawings drawings;
  if (plots.empty()) return drawings;
  const TempDir folder;
  std::string all;
  for (size_t i = 0; i < plots.size(); ++i) {
    write_bytes(folder / (std::to_string(i) + ".tsv"), plots[i].data);
    all += commands(plots[i], std::to_string(i));
  }
  // One call draws all; after a failure each by itself, so that one plot cannot cost the others.
  if (!run_gnuplot(program, folder.path(), all)) {
    if (!capture({program, "--version"}).ok()) return drawings;
    for (size_t i = 0; i < plots.size(); ++i)
      run_gnuplot(program, folder.path(), commands(plots[i], std::to_string(i)));
  }
  for (size_t i = 0; i < plots.size(); ++i) {
    const fs::path drawn = folder / (std::to_string(i) + ".svg");
    if (!fs::exists(drawn)) continue;
    const std::string svg = reports::clean_svg(read_bytes(drawn), plots[i].name, plots[i].alt);
    if (!svg.empty()) drawings["plots/" + plots[i].name + ".svg"] = svg + "\n";
  }
  return drawings;
}

}  // namespace harness::cli
