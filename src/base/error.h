// Errors and checks.
//
// Error is thrown for what the outside world did wrong: a bad file, a bad argument, a full disk. Its message names the
// thing, what was wrong and what was expected, so that a reader can act without the source. LOCKSTEP_CHECK is for what
// we did wrong: it is always on and aborts, because a broken invariant would mean wrong bytes.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

class Error : public std::runtime_error {
 public:
  enum class Kind {
    bad_argument,  // a command-line or request field
    bad_file,      // a file that is not what it should be
    unsupported,   // understood, and refused by name
    io,            // the operating system said no
    no_memory,     // a plan that cannot fit
    cancelled,     // the caller asked to stop
    device,        // a device failed; what is in its memory is lost
  };

  Error(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace lockstep

#define LOCKSTEP_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::lockstep::check_failed(#condition, __FILE__, __LINE__))
