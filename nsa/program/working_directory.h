#pragma once
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>

namespace nsa {

/// Ends the process with 3 where its working directory was deleted: the libraries under LibTorch
/// look for themselves from there while they are loaded, and end it without naming the reason.
inline void require_working_directory(int, char** argv, char**) {
  char path[PATH_MAX];
  if (::getcwd(path, sizeof path) != nullptr || errno != ENOENT) return;
  const auto write_text = [](std::string_view text) {
    return ::write(STDERR_FILENO, text.data(), text.size());
  };
  const char* slash = std::strrchr(argv[0], '/');
  write_text(slash != nullptr ? slash + 1 : argv[0]);
  write_text(
      ": the working directory was deleted; change to a folder that exists (cd DIR) and run "
      "again\n");
  ::_exit(3);
}

}  // namespace nsa

// Before the initialisers of any library. A program's main file includes this header, and no other.
[[gnu::section(".preinit_array"), gnu::used]] static void (*const nsa_require_working_directory)(
    int, char**, char**) = &nsa::require_working_directory;
