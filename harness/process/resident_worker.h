#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "harness/process/os/spawn.h"

namespace harness {

/// One process that measures group after group, where a run starts a process for each: without the
/// start-up, and so without what differs between processes. It serves to count the
/// results of a procedure over many runs; no run that is reported has one.
///
/// The program is started with --resident. In: the path of a result file, then a case line. Out:
/// "done" when the file is written. It ends when its input does, or at the first error.
class ResidentWorker {
 public:
  /// Throws NotStarted.
  ResidentWorker(const std::filesystem::path& program,
                 const std::map<std::string, std::string>& switches);
  /// Ends the process.
  ~ResidentWorker();
  ResidentWorker(const ResidentWorker&) = delete;
  ResidentWorker& operator=(const ResidentWorker&) = delete;

  /// Has one group measured. Throws Error with the program's own words when it failed or ended, and
  /// when it did not answer for `timeout_s`.
  void measure(const std::string& case_line, const std::filesystem::path& result, double timeout_s);

 private:
  void send(std::string text);
  std::string answer(double timeout_s);
  /// Reads the error stream, so that the program never blocks on it.
  void drain_errors();

  Child child_;
  std::string received_, errors_;
};

}  // namespace harness
