#pragma once
#include <filesystem>
#include <string>

/// Where the program finds what it ships with, and where runs go.
namespace harness::cli {

/// Folder of the running program.
std::filesystem::path program_dir();

/// The checkout this program was built from when it still exists, else empty.
std::filesystem::path checkout_dir();

/// `given` when not empty, else configs/ beside bin/ of an installed tree, else configs/ of the
/// checkout. Throws ConfigError naming every place that was tried.
std::filesystem::path configs_dir(const std::string& given);

/// Folder with the corpora: .data of the current folder, else of the installed tree or checkout
/// that the program lies in; that of the current folder where none exists.
std::filesystem::path data_dir();

/// The newest run folder in runs/. Throws ConfigError when there is none.
std::filesystem::path newest_run();

/// Creates runs/RUNBOOK-TIME, where a run goes that names no folder. Of calls within one second,
/// those of other processes too, each has its own: the later ones end in -2, -3 ... Throws
/// harness::Error when runs/ cannot be written.
std::filesystem::path new_run_folder(const std::string& runbook);

/// Throws ConfigError where the working directory was deleted: no relative name means anything
/// there.
void require_working_directory();

/// Where the matrices of self tests are kept, one for each build and hardware: .selftest of the
/// checkout, else of the working directory.
std::filesystem::path matrices_dir();

}  // namespace harness::cli
