// The one file that sees Gloo's headers. They are older than the code inside LibTorch, so only
// factories are called.
#include <csignal>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "nsa/train/ranks/rank_backends.h"

namespace nsa::train {

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int world,
                                                    std::chrono::milliseconds timeout,
                                                    bool one_machine) {
  // Gloo writes to its sockets with writev: where another rank has died in that moment, this one
  // would be ended by the signal before it can tell which rank and which collective.
  std::signal(SIGPIPE, SIG_IGN);
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(one_machine
                                 ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                 : c10d::ProcessGroupGloo::createDefaultDevice());
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world, options);
}

}  // namespace nsa::train
