// Runs the built program as a user would: arguments, stdin, and what comes back.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::test {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// A running program with pipes. Everything is read to its end by finish().
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments, const Variables& variables = {},
                   const std::string& program = LOCKSTEP_PROGRAM) {
    int in[2], out[2], err[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) std::abort();
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::dup2(err[1], 2);
      for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_DFL);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    ::close(err[1]);
    in_ = in[1];
    out_ = out[0];
    err_ = err[0];
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    for (const int file : {in_, out_, err_})
      if (file >= 0) ::close(file);
  }

  void write(const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t n = ::write(in_, text.data() + at, text.size() - at);
      if (n <= 0) return;
      at += static_cast<std::size_t>(n);
    }
  }
  void close_input() { ::close(std::exchange(in_, -1)); }
  void interrupt(int number = SIGINT) { ::kill(child_, number); }
  /// False if the stream ends before there is any.
  bool wait_for_some_output() { return !output.empty() || read_some(out_, output); }
  /// Reads until the text is there; false if the stream ends before.
  bool wait_for_errors(const std::string& text) { return wait_for(err_, errors, text); }

  /// Reads a little more; false if the stream ends.
  bool read_errors() { return read_some(err_, errors); }

  /// Reads both streams to their end and returns the exit code, or minus the signal. Errors are expected to fit a pipe.
  int finish() {
    if (in_ >= 0) close_input();
    while (read_some(out_, output)) {
    }
    while (read_some(err_, errors)) {
    }
    int status = 0;
    ::waitpid(child_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string output, errors;

 private:
  static bool read_some(int file, std::string& text) {
    char block[4096];
    const ssize_t n = ::read(file, block, sizeof block);
    if (n > 0) text.append(block, static_cast<std::size_t>(n));
    return n > 0;
  }
  static bool wait_for(int file, std::string& all, const std::string& text) {
    while (all.find(text) == std::string::npos)
      if (!read_some(file, all)) return false;
    return true;
  }

  pid_t child_ = 0;
  int in_ = -1, out_ = -1, err_ = -1;
};

struct Ran {
  int code;
  std::string output, errors;
};

inline Ran run_program(const std::vector<std::string>& arguments, const std::string& input = "",
                       const Variables& variables = {}, const std::string& path = LOCKSTEP_PROGRAM) {
  ::signal(SIGPIPE, SIG_IGN);  // a program that refuses its arguments does not read its input
  Program program(arguments, variables, path);
  program.write(input);
  const int code = program.finish();
  return {code, std::move(program.output), std::move(program.errors)};
}

}  // namespace lockstep::test
