// The server's transport on real sockets: what it bounds (bodies, threads, deadlines, connections) and whom it lets in
// (keys, CORS, hosts and origins).
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/http_server.h"
#include "server_client.h"
#include "server_served.h"

namespace lockstep {
namespace {

// --- Limits and deadlines

TEST(ServerHttp, BodiesUpToTheLimitAreTaken) {
  Served served([](HttpOptions& options) { options.linger_seconds = 20; });
  const std::string body(std::size_t{64} << 20, 'b');
  {
    Client client = served.client();
    client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n");
    client.send(body);
    const Reply reply = client.read_reply();
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(Json::parse(reply.body)["bytes"], body.size());
  }
  {
    // A client that sends everything before it reads sees the refusal nevertheless.
    Client client = served.client();
    client.send("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size() + 1) +
                "\r\n\r\n");
    EXPECT_TRUE(client.send(body));
    EXPECT_TRUE(client.send("b"));
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 413);
    EXPECT_EQ(Json::parse(reply.body)["error"]["type"], "request_too_large");
  }
}

TEST(ServerHttp, AllBodiesTogetherAreBounded) {
  Served served([](HttpOptions& options) { options.all_bodies_bytes = 1'000'000; });
  Client first = served.client();
  first.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900001\r\n\r\n" + std::string(900'000, 'x'));
  ASSERT_TRUE(becomes_true([&] { return served.server().counters().body_bytes == 900'000; }));
  const Reply reply = served.client().ask(request_text("POST", "/echo", std::string(200'000, 'x')));
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.header("retry-after"), "5");
  EXPECT_EQ(first.ask("x").status, 200);
  EXPECT_EQ(served.client().ask(request_text("POST", "/echo", std::string(900'000, 'x'))).status, 200);
}

TEST(ServerHttp, WhatFitsGoesOnWhereANewcomerFindsNoRoom) {
  Served served([](HttpOptions& options) {
    options.all_bodies_bytes = 1'000'000;
    options.large_body_bytes = 10'000;
  });
  const auto head = [](std::size_t bytes) {
    return "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n";
  };
  std::vector<Client> taken;  // by their announcements alone
  for (int i = 0; i < 4; ++i) {
    taken.push_back(served.client());
    taken.back().send(head(250'000) + std::string(1000, 'x'));
  }
  ASSERT_TRUE(becomes_true([&] { return served.server().counters().body_bytes == 4000; }));
  const std::string chunked = "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  const struct {
    const char* name;
    std::string request;
    int status;
  } kCases[] = {
      {"a large one", head(10'001) + std::string(10'001, 'x'), 503},
      {"large chunks", chunked + "2711\r\n" + std::string(10'001, 'x') + "\r\n0\r\n\r\n", 503},
      {"a small one", head(10'000) + std::string(10'000, 'x'), 200},
      {"small chunks", chunked + "2\r\nab\r\n0\r\n\r\n", 200},
      {"none", request_text("GET", "/echo"), 200},
  };
  for (const auto& c : kCases) EXPECT_EQ(served.client().ask(c.request).status, c.status) << c.name;
  for (Client& client : taken) EXPECT_EQ(client.ask(std::string(249'000, 'x')).status, 200);
  EXPECT_EQ(served.client().ask(head(1'000'000) + std::string(1'000'000, 'x')).status, 200);  // all is given back
}

TEST(ServerHttp, LargeRequestsLeaveThreadsToSmallOnes) {
  for (const int threads : {2, 5}) {
    Served served([&](HttpOptions& options) {
      options.worker_threads = threads;
      options.large_body_bytes = 1000;
    });
    std::vector<Client> large;
    for (int i = 0; i < 8; ++i) {
      large.push_back(served.client());
      large.back().send(request_text("POST", "/hold", std::string(1001, 'x')));
    }
    EXPECT_TRUE(becomes_true([&] { return served.held() == threads / 2; }));
    EXPECT_EQ(served.client().ask(request_text("POST", "/echo", std::string(1000, 'x'))).status, 200);
    large.back().close_hard();  // one that waits leaves
    EXPECT_TRUE(becomes_true([&] { return served.server().counters().clients_left == 1; }));
    EXPECT_EQ(served.held(), threads / 2);
    served.release();
    for (std::size_t i = 0; i + 1 < large.size(); ++i) EXPECT_EQ(large[i].read_reply().status, 200) << i;
    EXPECT_EQ(served.most_held(), threads / 2);
  }
}

TEST(ServerHttp, SlowRequestsHaveDeadlines) {
  Served served([](HttpOptions& options) {
    options.header_seconds = 0.3;
    options.body_seconds = 0.3;
    options.body_rate = 1000;
  });
  std::vector<Client> slow;  // many at once, a byte at a time
  for (int i = 0; i < 20; ++i) slow.push_back(served.client());
  const auto begin = Clock::now();
  for (int byte = 0; byte < 25; ++byte) {
    for (std::size_t i = 0; i < slow.size(); ++i) {
      const std::string head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n";
      slow[i].send(i % 2 == 0 ? std::string("GET /echo HTTP/1.1\r\nHost: localhost\r\nX-Header: slow").substr(byte, 1)
                              : (byte == 0 ? head : "b"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(served.is_alive());
  for (std::size_t i = 0; i < slow.size(); ++i) {
    const Reply reply = slow[i].read_reply();
    EXPECT_EQ(reply.status, 408) << i << reply.body;
    EXPECT_EQ(reply.header("connection"), "close");
  }
  EXPECT_LT(seconds_since(begin), 10);
  // Bytes that come buy time: a body that takes longer than the deadline, but is not slow.
  Served patient([](HttpOptions& options) {
    options.body_seconds = 1;
    options.body_rate = 500;
  });
  Client steady = patient.client();
  steady.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n");
  for (int i = 0; i < 10; ++i) {
    steady.send(std::string(200, 'b'));
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
  }
  EXPECT_EQ(steady.read_reply().status, 200);
}

TEST(ServerHttp, IdleConnectionsCostLittleAndAreClosedInTheEnd) {
  Served served([](HttpOptions& options) { options.idle_seconds = 2; });
  std::vector<Client> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(served.client());
  for (std::size_t i = 0; i < idle.size(); i += 2) EXPECT_EQ(idle[i].ask(request_text("GET", "/quick")).status, 200);
  EXPECT_EQ(served.server().counters().connections, 300u);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(served.is_alive());
  for (Client& client : idle) EXPECT_TRUE(client.is_closed_within(10));
  EXPECT_TRUE(becomes_true([&] { return served.server().counters().connections == 0; }));
}

TEST(ServerHttp, BeyondTheLimitTheLongestIdleConnectionGoes) {
  Served served([](HttpOptions& options) { options.connections = 10; });
  Client busy = served.client();
  busy.send(request_text("POST", "/shelf"));
  const auto exchange = served.shelf.take();
  std::vector<Client> idle;
  for (int i = 0; i < 20; ++i) {
    idle.push_back(served.client());
    EXPECT_EQ(idle.back().ask(request_text("GET", "/quick")).status, 200) << i;
  }
  EXPECT_TRUE(idle.front().is_closed_within(2));
  EXPECT_FALSE(idle.back().is_closed_within(0.05));
  exchange->respond({.body = "{}"});
  EXPECT_EQ(busy.read_reply().status, 200);
}

// --- Keys and CORS

TEST(ServerHttp, KeysAreAskedForWhereThereAreAny) {
  const Served served([](HttpOptions& options) { options.keys = ApiKeys::of({"sk-one", "sk-two"}); });
  const struct {
    const char* name;
    std::string target, headers;
    int status;
  } kCases[] = {
      {"no key", "/echo", "", 401},
      {"a bearer", "/echo", "Authorization: Bearer sk-one\r\n", 200},
      {"the other one, in lower case", "/echo", "authorization: bearer sk-two\r\n", 200},
      {"x-api-key", "/echo", "x-api-key: sk-one\r\n", 200},
      {"either may be right", "/echo", "Authorization: Bearer no\r\nx-api-key: sk-one\r\n", 200},
      {"a wrong one", "/echo", "Authorization: Bearer sk-three\r\n", 401},
      {"a beginning", "/echo", "Authorization: Bearer sk-on\r\n", 401},
      {"an empty one", "/echo", "Authorization: Bearer \r\nx-api-key:\r\n", 401},
      {"another scheme", "/echo", "Authorization: Basic sk-one\r\n", 401},
      {"no path either", "/nowhere", "", 401},
      {"health is open", "/v1/health", "", 200},
      {"inline routes are not", "/quick", "", 401},
  };
  Client client = served.client();
  for (const auto& c : kCases) {
    const Reply reply = client.ask(request_text("GET", c.target, {}, c.headers));
    EXPECT_EQ(reply.status, c.status) << c.name;
    EXPECT_EQ(reply.body.find("sk-"), std::string::npos) << c.name;
    if (c.status == 401) {
      EXPECT_EQ(Json::parse(reply.body)["error"]["code"], "invalid_api_key") << c.name;
    }
  }
  const Reply anthropic = served.client().ask(request_text("POST", "/v1/messages"));
  EXPECT_EQ(anthropic.status, 401);
  EXPECT_EQ(Json::parse(anthropic.body)["error"]["type"], "authentication_error");
}

TEST(ServerHttp, AKeyFileHoldsAKeyALine) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "lockstep_keys";
  const auto keys_of = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    return ApiKeys(path);
  };
  const ApiKeys keys = keys_of("# ours\n\n  one \r\ntwo");
  EXPECT_TRUE(keys.admit({{"x-api-key", "one"}}));
  EXPECT_TRUE(keys.admit({{"Authorization", "Bearer two"}}));
  EXPECT_FALSE(keys.admit({{"x-api-key", "# ours"}}));
  EXPECT_FALSE(keys.admit({}));
  for (const char* text : {"", "# nothing\n\n", "two words\n", "caf\xc3\xa9\n"})
    EXPECT_THROW(keys_of(text), Error) << text;
  std::filesystem::remove(path);
  EXPECT_THROW(ApiKeys{path}, Error);
}

TEST(ServerHttp, WithoutKeysALoopbackServerIsForThisMachineAndItsOwnPage) {
  const Served closed([](HttpOptions& options) {
    options.cors_origins = {"http://good.example"};
    options.host = "localhost";
  });
  const Served keyed([](HttpOptions& options) { options.keys = ApiKeys::of({"k"}); });
  const Served reachable([](HttpOptions& options) { options.host = "0.0.0.0"; });
  const Served any([](HttpOptions& options) { options.cors_origins = {"*"}; });
  const std::string own = "Host: 127.0.0.1:8000\r\n";
  const struct {
    const char* name;
    const Served& served;
    const char* method;
    std::string headers;
    int status;
  } kCases[] = {
      {"no Host", closed, "GET", "", 400},
      {"an address", closed, "GET", own, 200},
      {"another loopback address", closed, "GET", "Host: 127.1.2.3\r\n", 200},
      {"IPv6", closed, "GET", "Host: [::1]:8000\r\n", 200},
      {"a name", closed, "GET", "Host: LocalHost:1\r\n", 200},
      {"a name below it", closed, "GET", "Host: app.localhost\r\n", 200},
      {"a name that means this machine today", closed, "GET", "Host: evil.example:8000\r\n", 403},
      {"a name that begins alike", closed, "POST", "Host: localhost.evil.example\r\n", 403},
      {"an address of the network", closed, "POST", "Host: 192.168.0.5\r\n", 403},
      {"an empty one", closed, "GET", "Host: \r\n", 403},
      {"its own page", closed, "POST", own + "Origin: http://127.0.0.1:8000\r\n", 200},
      {"a page that --cors names", closed, "POST", own + "Origin: http://good.example\r\n", 200},
      {"another page", closed, "POST", own + "Origin: http://evil.example\r\n", 403},
      {"a page of another port", closed, "POST", own + "Origin: http://127.0.0.1:3000\r\n", 403},
      {"a page without an origin", closed, "POST", own + "Origin: null\r\n", 403},
      {"another page reads", closed, "GET", own + "Origin: http://evil.example\r\n", 403},
      {"another page asks what it may", closed, "OPTIONS", own + "Origin: http://evil.example\r\n", 204},
      {"every page may", any, "POST", own + "Origin: http://evil.example\r\n", 200},
      {"but under no other name", any, "POST", "Host: evil.example\r\n", 403},
      {"a key is better", keyed, "GET", "Host: a.example\r\nOrigin: http://b.example\r\nx-api-key: k\r\n", 200},
      {"other machines' names are not known", reachable, "GET", "Host: a.example\r\nOrigin: http://b.example\r\n", 200},
  };
  for (const auto& c : kCases) {
    const std::string text = std::string(c.method) + " /echo HTTP/1.1\r\n" + c.headers + "Content-Length: 0\r\n\r\n";
    const Reply reply = c.served.client().ask(text);
    EXPECT_EQ(reply.status, c.status) << c.name << reply.body;
    if (reply.status == 403) {
      EXPECT_EQ(Json::parse(reply.body)["error"]["type"], "permission_error") << c.name;
    }
  }
}

TEST(ServerHttp, CorsIsForTheOriginsThatWereNamed) {
  const Served served([](HttpOptions& options) { options.cors_origins = {"http://good.example"}; });
  const auto ask = [&](std::string_view method, std::string_view origin) {
    return served.client().ask(
        request_text(method, "/echo", {},
                     "Origin: " + std::string(origin) + "\r\nAccess-Control-Request-Headers: x-stainless-os\r\n"));
  };
  Reply reply = ask("OPTIONS", "http://good.example");
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.header("access-control-allow-origin"), "http://good.example");
  EXPECT_EQ(reply.header("access-control-allow-methods"), "GET, POST, HEAD, OPTIONS");
  EXPECT_EQ(reply.header("access-control-allow-headers"), "x-stainless-os");
  EXPECT_EQ(reply.header("vary"), "Origin");
  reply = ask("GET", "http://good.example");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.header("access-control-allow-origin"), "http://good.example");
  EXPECT_EQ(ask("GET", "http://evil.example").header("access-control-allow-origin"), "");
  const Served open([](HttpOptions& options) { options.cors_origins = {"*"}; });
  reply = open.client().ask(request_text("GET", "/nowhere", {}, "Origin: null\r\n"));
  EXPECT_EQ(reply.header("access-control-allow-origin"), "*");  // errors can be read too
}

}  // namespace
}  // namespace lockstep
