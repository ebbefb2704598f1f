// A client of bytes for tests of the server: it sends what it is told, well-formed or not, and reads what comes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::test {

struct Reply {
  int status = 0;  // 0: no answer came
  std::string head, body;

  /// The value of a header; empty if it is not there.
  std::string header(std::string name) const {
    const auto lower = [](std::string text) {
      for (char& c : text)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
      return text;
    };
    const std::size_t at = lower(head).find("\r\n" + lower(std::move(name)) + ": ");
    if (at == std::string::npos) return {};
    const std::size_t value = head.find(": ", at) + 2;
    return head.substr(value, head.find("\r\n", value) - value);
  }
};

class Client {
 public:
  explicit Client(int port, int receive_buffer = 0) {
    file_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) ::setsockopt(file_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const int on = 1;
    ::setsockopt(file_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(file_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) close();
  }
  ~Client() { close(); }
  Client(Client&& other) noexcept { *this = std::move(other); }
  Client& operator=(Client&& other) noexcept {
    std::swap(file_, other.file_);
    buffer_.swap(other.buffer_);
    std::swap(is_ended_, other.is_ended_);
    return *this;
  }

  bool is_open() const { return file_ >= 0; }

  /// False if the server does not take all of it.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  void shut_down_writing() { ::shutdown(file_, SHUT_WR); }
  void close() {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
  }
  /// So that the other side sees a reset.
  void close_hard() {
    const linger at_once{1, 0};
    ::setsockopt(file_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }

  /// One more read, within `seconds`. False at the end and when nothing came.
  bool read_some(double seconds = 10) {
    pollfd waiting{file_, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
    char block[65536];
    const ssize_t n = ::recv(file_, block, sizeof block, 0);
    if (n <= 0) {
      is_ended_ = true;
      return false;
    }
    buffer_.append(block, static_cast<std::size_t>(n));
    return true;
  }
  /// Whether the server closes the connection within `seconds`; what comes before is kept.
  bool is_closed_within(double seconds) {
    while (read_some(seconds)) {
    }
    return is_ended_;
  }
  bool read_until(std::string_view text, double seconds = 10) {
    while (buffer_.find(text) == std::string::npos)
      if (!read_some(seconds)) return false;
    return true;
  }
  std::string take() { return std::exchange(buffer_, {}); }
  const std::string& buffered() const { return buffer_; }

  /// The next answer, interim ones left out. `is_head`: it has no body.
  Reply read_reply(bool is_head = false) {
    Reply reply;
    for (;;) {
      if (!read_until("\r\n\r\n")) return reply;
      const std::size_t end = buffer_.find("\r\n\r\n") + 4;
      reply.head = buffer_.substr(0, end);
      buffer_.erase(0, end);
      reply.status = std::atoi(reply.head.c_str() + std::min<std::size_t>(reply.head.size(), 9));
      if (reply.status != 100) break;
    }
    if (is_head || reply.status == 204) return reply;
    if (reply.header("transfer-encoding") == "chunked") {
      read_chunks(reply);
    } else if (const std::string length = reply.header("content-length"); !length.empty()) {
      const std::size_t size = std::strtoull(length.c_str(), nullptr, 10);
      while (buffer_.size() < size && read_some()) {
      }
      reply.body = buffer_.substr(0, size);
      buffer_.erase(0, size);
    } else {
      while (read_some()) {
      }
      reply.body = take();
    }
    return reply;
  }

  Reply ask(std::string_view request, bool is_head = false) {
    send(request);
    return read_reply(is_head);
  }

 private:
  void read_chunks(Reply& reply) {
    for (;;) {
      if (!read_until("\r\n")) return;
      const std::size_t size = std::strtoull(buffer_.c_str(), nullptr, 16);
      const std::size_t begin = buffer_.find("\r\n") + 2;
      while (buffer_.size() < begin + size + 2)
        if (!read_some()) return;
      reply.body += buffer_.substr(begin, size);
      buffer_.erase(0, begin + size + 2);
      if (size == 0) return;
    }
  }

  int file_ = -1;
  std::string buffer_;
  bool is_ended_ = false;
};

/// A request with a body, or without one.
inline std::string request_text(std::string_view method, std::string_view target, std::string_view body = {},
                                std::string_view headers = {}) {
  std::string text(method);
  text.append(" ").append(target).append(" HTTP/1.1\r\nHost: localhost\r\n").append(headers);
  if (!body.empty() || method == "POST") text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return text.append("\r\n").append(body);
}

}  // namespace lockstep::test
