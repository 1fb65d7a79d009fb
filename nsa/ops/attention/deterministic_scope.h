#pragma once

namespace nsa {

/// While any of these lives, LibTorch's backward passes take their deterministic variants. The
/// setting is one of the process (at::globalContext), so scopes of several threads share it: the
/// first one saves what the program had set, and the last one puts it back.
class DeterministicScope {
 public:
  DeterministicScope();
  ~DeterministicScope();
  DeterministicScope(const DeterministicScope&) = delete;
  DeterministicScope& operator=(const DeterministicScope&) = delete;
};

}  // namespace nsa
