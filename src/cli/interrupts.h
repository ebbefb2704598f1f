// Ctrl-C without a signal handler: a thread of its own waits for it, so that nothing is shared but an atomic flag and
// no variable has to be global.
#pragma once

#include <signal.h>

#include <atomic>
#include <thread>

namespace lockstep {

class Interrupts {
 public:
  /// From here on Ctrl-C reaches only this object. Make it before other threads: they inherit that they are not to be
  /// interrupted. Where the process was started with Ctrl-C ignored, it stays so.
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// While it lives, the first Ctrl-C sets the flag. A second one, and any one at other times, ends the program.
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

  sigset_t previous_{};
  std::atomic<bool> flag_{false};
  std::atomic<bool> stops_{false};
  std::atomic<bool> is_closing_{false};
  std::thread thread_;
};

}  // namespace lockstep
