#include "harness/engine/interrupt.h"

#include <array>

namespace harness {
namespace {

volatile std::sig_atomic_t noted = 0;
int guards = 0;  ///< alive; a run inside a run (an injected one) keeps what the outer one noted
void note(int signal) { noted = signal; }

constexpr std::array<int, 6> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ};
constexpr size_t kNoted = 4;  ///< of them; the rest are ignored

}  // namespace

InterruptGuard::InterruptGuard() {
  if (guards++ == 0) noted = 0;
  for (size_t i = 0; i < kSignals.size(); i++) {
    struct sigaction action{};
    action.sa_handler = i < kNoted ? note : SIG_IGN;  // no SA_RESTART: poll returns at once
    ::sigaction(kSignals[i], &action, &before_[i]);
    if (kSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN)
      ::sigaction(SIGHUP, &before_[i], nullptr);  // nohup: it is to outlive its terminal
  }
}

InterruptGuard::~InterruptGuard() {
  --guards;
  for (size_t i = 0; i < kSignals.size(); i++) ::sigaction(kSignals[i], &before_[i], nullptr);
}

int InterruptGuard::signal() { return noted; }

}  // namespace harness
