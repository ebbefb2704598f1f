#include "cli/interrupts.h"

namespace lockstep {
namespace {

sigset_t only_interrupt() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

Interrupts::Interrupts() {
  struct sigaction action {};
  if (sigaction(SIGINT, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return;
  const sigset_t set = only_interrupt();
  pthread_sigmask(SIG_BLOCK, &set, &previous_);
  thread_ = std::thread([this] { wait(); });
}

Interrupts::~Interrupts() {
  if (!thread_.joinable()) return;
  is_closing_ = true;
  pthread_kill(thread_.native_handle(), SIGINT);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

void Interrupts::wait() {
  const sigset_t set = only_interrupt();
  for (;;) {
    int signal_number = 0;
    if (sigwait(&set, &signal_number) != 0 || is_closing_) return;
    if (stops_ && !flag_.exchange(true)) continue;
    // As if nothing had been blocked: the shell sees a program that Ctrl-C has ended.
    signal(SIGINT, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    raise(SIGINT);
  }
}

}  // namespace lockstep
