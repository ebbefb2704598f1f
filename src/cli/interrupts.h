// Ctrl-C without a signal handler: a thread of its own waits for it, so that nothing is shared but an atomic flag and
// no variable has to be global.
#pragma once

#include <signal.h>

#include <atomic>
#include <initializer_list>
#include <thread>

namespace lockstep {

class Interrupts {
 public:
  /// What ends a program that has half a file on the disk: Ctrl-C, kill, and a terminal that closes.
  static constexpr std::initializer_list<int> kEveryEnd = {SIGINT, SIGTERM, SIGHUP};

  /// From here on these signals reach only this object. Make it before other threads: they inherit that they are not to
  /// be interrupted. Signals that the process was started to ignore stay ignored.
  explicit Interrupts(std::initializer_list<int> signals = {SIGINT});
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// While it lives, the first signal sets the flag. A second one, and any one at other times, ends the program.
  class Stops {
   public:
    explicit Stops(Interrupts& interrupts) : interrupts_(interrupts) {
      interrupts_.flag_ = false;
      interrupts_.stops_ = true;
    }
    ~Stops() { interrupts_.stops_ = false; }
    Stops(const Stops&) = delete;
    Stops& operator=(const Stops&) = delete;
    const std::atomic<bool>& flag() const { return interrupts_.flag_; }

   private:
    Interrupts& interrupts_;
  };

 private:
  void wait();

  sigset_t signals_{};
  int wake_ = 0;  // one of signals_; 0 if there are none
  sigset_t previous_{};
  std::atomic<bool> flag_{false};
  std::atomic<bool> stops_{false};
  std::atomic<bool> is_closing_{false};
  std::thread thread_;
};

}  // namespace lockstep
