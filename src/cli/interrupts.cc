#include "cli/interrupts.h"

namespace lockstep {

Interrupts::Interrupts(std::initializer_list<int> signals) {
  sigemptyset(&signals_);
  for (const int signal_number : signals) {
    struct sigaction action {};
    if (sigaction(signal_number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    sigaddset(&signals_, signal_number);
    wake_ = signal_number;
  }
  if (wake_ == 0) return;
  pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
  thread_ = std::thread([this] { wait(); });
}

Interrupts::~Interrupts() {
  if (!thread_.joinable()) return;
  is_closing_ = true;
  pthread_kill(thread_.native_handle(), wake_);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

void Interrupts::wait() {
  for (;;) {
    int signal_number = 0;
    if (sigwait(&signals_, &signal_number) != 0 || is_closing_) return;
    if (stops_ && !flag_.exchange(true)) continue;
    // As if nothing had been blocked: the shell sees a program that the signal has ended.
    signal(signal_number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    raise(signal_number);
  }
}

}  // namespace lockstep
