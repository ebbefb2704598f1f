// The server's transport on real sockets: framing, TLS, clients that leave or do not read, and the end. Limits and who
// is let in are in server_http_limits_test.cc. Handlers here are a few lines; what the API does with a request is
// tested elsewhere.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/http_server.h"
#include "server_client.h"
#include "server_served.h"
#include "server_tls.h"

namespace lockstep {
namespace {

// --- Framing

TEST(ServerHttp, ARequestIsReadHoweverItIsFramed) {
  const Served served;
  const std::string chunked = "POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  const struct {
    const char* name;
    std::string request;
    Json expected;  // members that the echo must have
  } kCases[] = {
      {"a path", request_text("GET", "/echo"), {{"path", "/echo"}, {"v1", false}}},
      {"below /v1", request_text("GET", "/v1/echo"), {{"path", "/echo"}, {"v1", true}}},
      {"a trailing slash", request_text("GET", "/v1/echo/"), {{"path", "/echo"}}},
      {"a query is no part of the path", request_text("GET", "/echo?mode=a%20b&x"), {{"mode", "a b"}}},
      {"a beta query", request_text("POST", "/v1/messages?beta=true", "x"), {{"query", "beta=true"}}},
      {"more segments", request_text("GET", "/v1/echo/a/b"), {{"rest", "a/b"}}},
      {"an escaped path", request_text("GET", "/%65cho/a%2Fb"), {{"rest", "a/b"}}},
      {"the absolute form", request_text("GET", "http://localhost:1/echo?mode=q"), {{"path", "/echo"}, {"mode", "q"}}},
      {"empty lines before it", "\r\n\r\n" + request_text("GET", "/echo"), {{"path", "/echo"}}},
      {"no Content-Type", "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi", {{"body", "hi"}}},
      {"an empty body", request_text("POST", "/echo"), {{"bytes", 0}}},
      {"chunks", chunked + "2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n", {{"body", "abcde"}}},
      {"chunk extensions and a trailer", chunked + "2;a=b\r\nab\r\n0\r\nX-Trailer: 1\r\n\r\n", {{"body", "ab"}}},
      {"identity is no coding",
       request_text("POST", "/echo", "hi", "Content-Encoding: identity\r\n"),
       {{"body", "hi"}}},
      {"an odd content type", request_text("POST", "/echo", "hi", "Content-Type: \"\"\r\n"), {{"body", "hi"}}},
      {"it was an upgrade",
       request_text("GET", "/echo", "", "Connection: Upgrade\r\nUpgrade: h2c\r\n"),
       {{"bytes", 0}}},
  };
  for (const auto& c : kCases) {
    Client client = served.client();
    // Byte by byte too: where a packet ends must not matter.
    for (const bool is_slow : {false, true}) {
      if (is_slow) {
        for (const char byte : c.request) client.send({&byte, 1});
      } else {
        client.send(c.request);
      }
      const Reply reply = client.read_reply();
      ASSERT_EQ(reply.status, 200) << c.name << "\n" << reply.head << reply.body;
      const Json body = Json::parse(reply.body);
      for (const auto& [key, value] : c.expected.items()) EXPECT_EQ(body[key], value) << c.name;
      EXPECT_EQ(reply.header("content-type"), "application/json; charset=utf-8") << c.name;
      EXPECT_EQ(reply.header("cache-control"), "no-cache") << c.name;
      EXPECT_TRUE(reply.header("x-request-id").starts_with("req_")) << c.name;
      EXPECT_EQ(reply.header("request-id"), reply.header("x-request-id")) << c.name;
    }
  }
}

TEST(ServerHttp, WhatIsNoRequestIsRefusedAndTheConnectionEnds) {
  const Served served([](HttpOptions& options) { options.body_bytes = 1000; });
  const std::string chunked = "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string plain = "GET /echo HTTP/1.1\r\nHost: localhost\r\n";
  const struct {
    const char* name;
    std::string request;
    int status;
  } kCases[] = {
      {"a length and chunks",
       "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", 400},
      {"chunks and a length",
       "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc", 400},
      {"two lengths", "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
       400},
      {"a negative length", "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400},
      {"a length past 64 bits",
       "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400},
      {"a large length", "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n", 413},
      {"large chunks", chunked + "3e9\r\n" + std::string(1001, 'x') + "\r\n0\r\n\r\n", 413},
      {"many small chunks",
       chunked +
           [] {
             std::string text;
             for (int i = 0; i < 1001; ++i) text += "1\r\nx\r\n";
             return text;
           }(),
       413},
      {"a chunk size that is none", chunked + "zz\r\n", 400},
      {"a negative chunk", chunked + "-5\r\nhello\r\n0\r\n\r\n", 400},
      {"a chunk past 64 bits", chunked + "fffffffffffffffff\r\nx", 400},
      {"a chunk longer than said", chunked + "2\r\nabcdef\r\n0\r\n\r\n", 400},
      {"an endless extension", chunked + "1;" + std::string(200000, 'a'), 400},
      {"another transfer coding",
       "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"a content coding", request_text("POST", "/echo", "x", "Content-Encoding: gzip\r\n"), 415},
      {"an expectation", request_text("POST", "/echo", "x", "Expect: a miracle\r\n"), 417},
      {"a large header", plain + "X: " + std::string(70000, 'a') + "\r\n\r\n", 431},
      {"many headers",
       plain +
           [] {
             std::string text;
             for (int i = 0; i < 8000; ++i) text += "X-" + std::to_string(i) + ": 1\r\n";
             return text;
           }() +
           "\r\n",
       431},
      {"a header without an end", plain + std::string(140000, 'a'), 431},
      {"a broken header line", plain + "no colon here\r\n\r\n", 400},
      {"a NUL in a header", plain + std::string("X: a\0b\r\n\r\n", 10), 400},
      {"no Host", "GET /echo HTTP/1.1\r\n\r\n", 400},
      {"no Host beside a whole URL", "GET http://localhost/echo HTTP/1.1\r\n\r\n", 400},
      {"two Hosts", plain + "Host: localhost\r\n\r\n", 400},
      {"another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n", 400},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"TLS", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(30, 'r') + "\r\n\r\n", 400},
  };
  for (const auto& c : kCases) {
    Client client = served.client();
    client.send(c.request);
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, c.status) << c.name << "\n" << reply.head << reply.body;
    if (reply.status == 0) continue;
    EXPECT_EQ(reply.header("connection"), "close") << c.name;
    const Json body = Json::parse(reply.body);
    EXPECT_TRUE(body["error"]["message"].is_string()) << c.name;
    for (const char* member : {"type", "param", "code"}) EXPECT_TRUE(body["error"].contains(member)) << c.name;
    client.shut_down_writing();
    EXPECT_TRUE(client.is_closed_within(5)) << c.name;
  }
  EXPECT_TRUE(served.is_alive());
}

TEST(ServerHttp, TheClientWaitsForContinue) {
  const Served served;
  Client client = served.client();
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.read_until("\r\n\r\n"));
  EXPECT_EQ(client.take(), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(client.ask("hi").status, 200);
  // A refusal comes instead of it.
  client.send("POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.read_until("\r\n"));
  EXPECT_TRUE(client.buffered().starts_with("HTTP/1.1 404")) << client.buffered();
}

TEST(ServerHttp, MethodsAndPathsThatAreNotThere) {
  const Served served;
  const auto ask = [&](std::string_view method, std::string_view target, std::string_view headers = {}) {
    return served.client().ask(request_text(method, target, {}, headers), method == "HEAD");
  };
  Reply reply = ask("HEAD", "/v1/echo");
  EXPECT_EQ(reply.status, 200);
  EXPECT_GT(std::stoi(reply.header("content-length")), 0);
  reply = ask("DELETE", "/v1/echo");
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.header("allow"), "GET, POST, HEAD, OPTIONS");
  reply = ask("DELETE", "/v1/echo/one");
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.header("allow"), "GET, HEAD, OPTIONS");
  for (const char* target : {"/v1/echo/one", "/echo/one/cancel"}) {  // something to do, not something that is there
    reply = ask("POST", target);
    EXPECT_EQ(reply.status, 404) << target;
    EXPECT_EQ(Json::parse(reply.body)["error"]["type"], "not_found_error");
  }
  EXPECT_EQ(ask("OPTIONS", "/v1/echo/one").header("allow"), "GET, HEAD, OPTIONS");
  reply = ask("GET", "/v1/messages");
  EXPECT_EQ(reply.status, 405);
  Json body = Json::parse(reply.body);
  EXPECT_EQ(body["type"], "error");
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_EQ(body["request_id"], reply.header("request-id"));
  reply = ask("GET", "/v1/nowhere");
  EXPECT_EQ(reply.status, 404);
  body = Json::parse(reply.body);
  EXPECT_EQ(body["error"]["type"], "not_found_error");
  EXPECT_TRUE(body["error"]["param"].is_null());
  reply = ask("GET", "/nowhere", "anthropic-version: 2023-06-01\r\n");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(Json::parse(reply.body)["type"], "error");
  reply = ask("OPTIONS", "/v1/echo");
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.header("content-length"), "");
  EXPECT_EQ(reply.header("access-control-allow-methods"), "");  // CORS is off
}

TEST(ServerHttp, RequestsOfOneConnectionAreAnsweredInTheirOrder) {
  Served served;
  Client client = served.client();
  client.send(request_text("POST", "/shelf", "first") + request_text("GET", "/echo?mode=second") +
              request_text("GET", "/nowhere") + request_text("GET", "/quick?mode=fourth"));
  const auto exchange = served.shelf.take();
  EXPECT_FALSE(client.read_some(0.1));  // the second one waits
  exchange->respond({.body = "\"first\""});
  EXPECT_EQ(client.read_reply().body, "\"first\"");
  EXPECT_EQ(Json::parse(client.read_reply().body)["mode"], "second");
  EXPECT_EQ(client.read_reply().status, 404);
  EXPECT_EQ(Json::parse(client.read_reply().body)["mode"], "fourth");
}

TEST(ServerHttp, OldClientsGetWhatTheyKnow) {
  Served served;
  Client client = served.client();
  Reply reply = client.ask("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.header("connection"), "close");
  Client kept = served.client();
  EXPECT_EQ(kept.ask("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").header("connection"), "keep-alive");
  kept.send("POST /shelf HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n");
  const auto exchange = served.shelf.take();
  exchange->begin_stream();
  exchange->send("data: 1\n\n");
  exchange->end();
  reply = kept.read_reply();  // to the end of the connection
  EXPECT_EQ(reply.header("transfer-encoding"), "");
  EXPECT_EQ(reply.body, "data: 1\n\n");
}

// --- Answers

TEST(ServerHttp, AStreamIsSentAsItIsMade) {
  Served served;
  Client client = served.client();
  client.send(request_text("POST", "/shelf"));
  const auto exchange = served.shelf.take();
  exchange->begin_stream({{"X-Test", "a\r\nb"}});
  ASSERT_TRUE(client.read_until("\r\n\r\n"));  // before anything was sent
  EXPECT_NE(client.buffered().find("Content-Type: text/event-stream; charset=utf-8"), std::string::npos);
  EXPECT_NE(client.buffered().find("X-Accel-Buffering: no"), std::string::npos);
  EXPECT_NE(client.buffered().find("X-Test: a  b\r\n"), std::string::npos);  // no value ends its line
  EXPECT_TRUE(exchange->send("data: 1\n\n"));
  EXPECT_TRUE(client.read_until("data: 1\n\n"));
  EXPECT_TRUE(exchange->send("data: 2\n\n"));
  EXPECT_TRUE(exchange->send(""));  // not the end
  exchange->end();
  exchange->send("too late");
  exchange->respond({.status = 500});
  EXPECT_EQ(client.read_reply().body, "data: 1\n\ndata: 2\n\n");
  EXPECT_EQ(client.ask(request_text("GET", "/echo")).status, 200);  // the connection goes on
}

TEST(ServerHttp, ASilentStreamIsKeptAlive) {
  Served served;
  Client client = served.client();
  client.send(request_text("POST", "/shelf"));
  const auto exchange = served.shelf.take();
  std::atomic<int> calls = 0;
  exchange->begin_stream();
  exchange->on_silence(0.05, [&, weak = std::weak_ptr(exchange)] {
    ++calls;
    if (const auto alive = weak.lock()) alive->send(": ping\n\n");
  });
  EXPECT_TRUE(client.read_until(": ping\n\n"));
  EXPECT_TRUE(becomes_true([&] { return calls >= 3; }));
  exchange->end();
  EXPECT_NE(client.read_reply().body.find(": ping\n\n: ping\n\n: ping\n\n"), std::string::npos);
  const int before = calls;
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_EQ(calls, before);
}

TEST(ServerHttp, AnErrorOfAHandlerIsAnAnswer) {
  const Served served;
  const struct {
    const char* body;
    int status;
    const char* type;
  } kCases[] = {{"api", 429, "rate_limit_error"},
                {"argument", 400, "invalid_request_error"},
                {"io", 500, "server_error"},
                {"other", 500, "server_error"}};
  Client client = served.client();
  for (const auto& c : kCases) {
    const Reply reply = client.ask(request_text("POST", "/fail", c.body));
    EXPECT_EQ(reply.status, c.status) << c.body;
    const Json error = Json::parse(reply.body)["error"];
    EXPECT_EQ(error["type"], c.type);
    if (c.status != 429) continue;
    EXPECT_EQ(reply.header("retry-after"), "2");
    EXPECT_EQ(error["code"], "queue");
    EXPECT_EQ(error["n"], 3);
  }
}

TEST(ServerHttp, NobodyWaitsForAnAnswerThatWasGivenUp) {
  Served served;
  Client client = served.client();
  EXPECT_EQ(client.ask(request_text("POST", "/drop")).status, 500);
  client.send(request_text("POST", "/shelf"));
  served.shelf.take()->begin_stream();
  ASSERT_TRUE(client.is_closed_within(5));
  EXPECT_EQ(client.buffered().find("\r\n0\r\n"), std::string::npos);  // not an orderly end
}

TEST(ServerHttp, NotesComeWithTheRecord) {
  Served served;
  Client client = served.client();
  client.send(request_text("POST", "/v1/shelf?key=secret", "body"));
  const auto exchange = served.shelf.take();
  exchange->note({{"cached", 5}});
  exchange->note({{"rate", 1.5}});
  exchange->respond({.body = "{}"});
  client.read_reply();
  ASSERT_TRUE(becomes_true([&] { return !served.records().empty(); }));
  const RequestRecord record = served.records().front();
  EXPECT_EQ(record.path, "/v1/shelf");
  EXPECT_EQ(record.status, 200);
  EXPECT_EQ(record.bytes_in, 4u);
  EXPECT_EQ(record.end, "done");
  EXPECT_EQ(record.notes, Json({{"cached", 5}, {"rate", 1.5}}));
}

// --- Clients that leave, or do not read

TEST(ServerHttp, AClientThatLeavesIsNoticed) {
  const struct {
    const char* name;
    bool is_stream, is_hard;
  } kCases[] = {{"while it waits", false, false},
                {"while it waits, with a reset", false, true},
                {"in a stream", true, false},
                {"in a stream, with a reset", true, true}};
  Served served;
  for (const auto& c : kCases) {
    Client client = served.client();
    client.send(request_text("POST", "/shelf"));
    const auto exchange = served.shelf.take();
    if (c.is_stream) {
      exchange->begin_stream();
      exchange->on_silence(600, [weak = std::weak_ptr(exchange)] {
        if (const auto alive = weak.lock()) alive->send(": still there?\n\n");
      });
      client.read_until("\r\n\r\n");
    }
    EXPECT_FALSE(exchange->is_gone()) << c.name;
    c.is_hard ? client.close_hard() : client.close();
    EXPECT_TRUE(becomes_true([&] { return exchange->is_gone(); })) << c.name;
    EXPECT_FALSE(exchange->send("x")) << c.name;
  }
  EXPECT_EQ(served.server().counters().clients_left, 4u);
}

TEST(ServerHttp, AClientThatOnlyStopsWritingGetsItsAnswer) {
  Served served;
  Client client = served.client();
  client.send(request_text("POST", "/shelf"));
  client.shut_down_writing();
  const auto exchange = served.shelf.take();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(exchange->is_gone());
  exchange->respond({.body = "\"here\""});
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "\"here\"");
  EXPECT_TRUE(client.is_closed_within(5));

  Client streaming = served.client();
  streaming.send(request_text("POST", "/shelf"));
  const auto stream = served.shelf.take();
  stream->begin_stream();
  streaming.shut_down_writing();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(stream->send("data: 1\n\n"));
  stream->end();
  EXPECT_EQ(streaming.read_reply().body, "data: 1\n\n");
}

TEST(ServerHttp, RequestsBeforeTheEndOfWritingAreAllAnswered) {
  Served served;
  Client client = served.client();
  client.send(request_text("POST", "/shelf", "1") + request_text("GET", "/echo?mode=2") +
              request_text("GET", "/quick?mode=3"));
  client.shut_down_writing();
  const auto exchange = served.shelf.take();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  exchange->respond({.body = "\"first\""});
  EXPECT_EQ(client.read_reply().body, "\"first\"");
  EXPECT_EQ(Json::parse(client.read_reply().body)["mode"], "2");
  EXPECT_EQ(Json::parse(client.read_reply().body)["mode"], "3");
  EXPECT_TRUE(client.is_closed_within(5));
}

TEST(ServerHttp, AClientThatDoesNotReadIsGivenUpAndHoldsNobodyUp) {
  Served served([](HttpOptions& options) { options.write_seconds = 1; });
  Client slow = served.client(4096);
  slow.send(request_text("POST", "/shelf"));
  const auto exchange = served.shelf.take();
  exchange->begin_stream();
  const std::string block(100'000, 'x');
  for (int i = 0; i < 100; ++i) exchange->send(block);  // returns at once
  EXPECT_TRUE(served.is_alive());
  EXPECT_FALSE(exchange->is_gone());  // the others were not kept waiting for its deadline
  EXPECT_TRUE(becomes_true([&] { return exchange->is_gone(); }));
}

TEST(ServerHttp, AClientThatReadsSlowlyIsWaitedFor) {
  Served served([](HttpOptions& options) { options.write_seconds = 0.4; });
  Client slow = served.client(4096);
  slow.send(request_text("POST", "/shelf"));
  const auto exchange = served.shelf.take();
  exchange->respond({.body = std::string(8'000'000, 'x')});
  const auto begin = Clock::now();
  while (seconds_since(begin) < 1) {  // longer than the deadline, with progress all along
    slow.read_some();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(slow.read_reply().body.size(), 8'000'000u);
}

TEST(ServerHttp, WhatAClientDoesNotReadIsBounded) {
  Served served([](HttpOptions& options) { options.unread_bytes = 1'000'000; });
  Client slow = served.client(4096);
  slow.send(request_text("POST", "/shelf"));
  const auto exchange = served.shelf.take();
  exchange->begin_stream();
  const std::string block(100'000, 'x');
  EXPECT_TRUE(becomes_true([&] { return !exchange->send(block); }));
}

// --- TLS

TEST(ServerHttp, TlsCarriesTheSame) {
  const test::Certificate certificate(testing::TempDir());
  Served served([&](HttpOptions& options) {
    options.tls_certificate = certificate.certificate_path;
    options.tls_key = certificate.key_path;
    options.handshake_seconds = 1.5;
  });
  test::TlsClient client(served.port());
  ASSERT_TRUE(client.is_open());
  EXPECT_NE(client.ask(request_text("GET", "/echo?mode=tls"), "\"body\"").find("\"mode\":\"tls\""), std::string::npos);
  const std::string large(3'000'000, 'x');
  EXPECT_NE(client.ask(request_text("POST", "/echo", large), "\"body\"").find("\"bytes\":3000000"), std::string::npos);
  client.send(request_text("POST", "/shelf"));
  auto exchange = served.shelf.take();
  exchange->begin_stream();
  exchange->send("data: 1\n\n");
  EXPECT_NE(client.read_until("data: 1\n\n").find("text/event-stream"), std::string::npos);
  client.close();
  EXPECT_TRUE(becomes_true([&] { return exchange->is_gone(); }));
  // HTTP is told what is spoken here; what is neither is closed, and what says nothing too.
  Client plain = served.client();
  const Reply told = plain.ask(request_text("GET", "/echo"));
  EXPECT_EQ(told.status, 400);
  EXPECT_NE(told.body.find("https"), std::string::npos) << told.body;
  EXPECT_TRUE(plain.is_closed_within(5));
  Client noise = served.client();
  noise.send("\x01\x02\x03\x04\x05\x06\x07\x08");
  EXPECT_TRUE(noise.is_closed_within(5));
  EXPECT_TRUE(served.client().is_closed_within(5));
  EXPECT_TRUE(test::TlsClient(served.port()).is_open());
}

TEST(ServerHttp, WhatCannotWorkIsRefusedAtTheStart) {
  const test::Certificate certificate(testing::TempDir()), other(testing::TempDir());
  const auto message = [](const std::function<void(HttpOptions&)>& change) -> std::string {
    try {
      Served served(change);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string missing = message([&](HttpOptions& options) {
    options.tls_certificate = "/nowhere.pem";
    options.tls_key = certificate.key_path;
  });
  EXPECT_NE(missing.find("TLS certificate /nowhere.pem"), std::string::npos) << missing;
  const std::string wrong = message([&](HttpOptions& options) {
    options.tls_certificate = certificate.certificate_path;
    options.tls_key = other.key_path;
  });
  EXPECT_NE(wrong.find("TLS key " + other.key_path), std::string::npos) << wrong;
  const std::string host = message([](HttpOptions& options) { options.host = "no.such.host.invalid"; });
  EXPECT_NE(host.find("no.such.host.invalid"), std::string::npos) << host;
  const Served first;
  const std::string taken = message([&](HttpOptions& options) { options.port = first.port(); });
  EXPECT_NE(taken.find("port " + std::to_string(first.port())), std::string::npos) << taken;
}

// --- The end

TEST(ServerHttp, AStopLetsAnswersEnd) {
  Served served;
  Client idle = served.client(), streaming = served.client(), late = served.client();
  EXPECT_EQ(late.ask(request_text("GET", "/echo")).status, 200);
  streaming.send(request_text("POST", "/shelf"));
  auto exchange = served.shelf.take();
  exchange->begin_stream();
  exchange->send("data: 1\n\n");
  EXPECT_TRUE(streaming.read_until("data: 1"));
  served.server().begin_shutdown();
  EXPECT_TRUE(idle.is_closed_within(2));
  EXPECT_TRUE(late.is_closed_within(2));
  EXPECT_FALSE(served.client().is_open());
  EXPECT_FALSE(served.server().drain(0.05));
  exchange->send("data: 2\n\n");
  streaming.send(request_text("GET", "/echo"));  // comes too late
  exchange->end();
  EXPECT_NE(streaming.read_reply().body.find("data: 2"), std::string::npos);
  EXPECT_TRUE(served.server().drain(5));
  const Reply refused = streaming.read_reply();
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(refused.header("connection"), "close");
}

TEST(ServerHttp, AnExchangeMayOutliveItsServer) {
  Served served;
  Client client = served.client();
  client.send(request_text("POST", "/shelf"));
  auto exchange = served.shelf.take();
  exchange->begin_stream();
  served.close();
  EXPECT_TRUE(client.is_closed_within(5));
  EXPECT_TRUE(exchange->is_gone());
  EXPECT_FALSE(exchange->send("x"));
  exchange->end();
  exchange->respond({});
}

TEST(ServerHttp, RoutesMayChangeWhileItServes) {
  Served served;
  auto router = std::make_shared<Router>();
  router->set_fallback([](const std::shared_ptr<Exchange>&) { throw ApiError(503, "Loading model", {}, "loading"); },
                       HttpRoute::Where::inline_);
  Client client = served.client();
  EXPECT_EQ(client.ask(request_text("GET", "/quick")).status, 200);
  served.server().set_router(router);
  const Reply reply = client.ask(request_text("GET", "/quick"));
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(Json::parse(reply.body)["error"]["code"], "loading");
  EXPECT_EQ(reply.header("retry-after"), "5");
}

// --- Noise

TEST(ServerHttp, NoiseIsSurvived) {
  Served served([](HttpOptions& options) {
    options.header_seconds = 0.5;
    options.body_seconds = 0.5;
    options.linger_seconds = 0.1;
  });
  std::mt19937 random(7);
  const std::string valid =
      "POST /v1/echo?x=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: "
      "100-continue\r\n\r\n5;e=\"1\"\r\nhello\r\n0\r\nT: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n";
  std::vector<Client> clients;
  for (int i = 0; i < 600; ++i) {
    std::string bytes = valid;
    if (i % 3 == 0) {
      bytes.resize(random() % 3000);
      for (char& byte : bytes) byte = static_cast<char>(random());
    } else {
      for (unsigned n = 1 + random() % 4; n > 0; --n) {
        const std::size_t at = random() % bytes.size();
        if (random() % 2 == 0) bytes[at] = static_cast<char>(random());
        if (random() % 4 == 0) bytes.erase(at, random() % 20);
        if (random() % 4 == 0) bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 40));
        if (bytes.empty()) bytes.push_back('x');
      }
    }
    clients.push_back(served.client());
    clients.back().send(bytes);
    if (i % 5 == 0) clients.back().close_hard();
    if (clients.size() > 50) clients.erase(clients.begin(), clients.begin() + 25);
  }
  EXPECT_TRUE(served.is_alive());
  clients.clear();
  EXPECT_TRUE(becomes_true([&] { return served.server().counters().connections == 0; }));
  EXPECT_EQ(served.server().counters().active, 0u);
}

}  // namespace
}  // namespace lockstep
