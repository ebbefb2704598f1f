// The answers of one request on their way to its client.
//
// A Reply takes the pieces of its answers, joins them to whole ones, and, if the client wants a stream, has its
// protocol put every piece into words at once. Each protocol is a class below it that says those words; when they may
// be said, what happens to errors, silence and clients that leave, is all here. Callbacks come from the scheduler's
// thread and the transport's; a lock puts them in order.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/api_state.h"
#include "server/plan.h"

namespace lockstep {

class Reply : public AnswerSink, public std::enable_shared_from_this<Reply> {
 public:
  Reply(ApiShared api, std::shared_ptr<Exchange> exchange, std::string model, bool is_stream);

  /// Submits `count` answers to one prompt and answers the client when they come. Throws ApiError 429 or 503 if they
  /// are not taken; then nothing was sent.
  void start(const Plan& plan, int count = 1);

  bool is_cancelled() const override { return is_cancelled_ || exchange_->is_gone(); }
  void on_prefill(int choice, const PrefillProgress& progress) override;
  void on_piece(int choice, AnswerPiece piece) override;
  void on_token(int choice, Token token, bool is_first) override;
  void on_end(int choice, AnswerEnd end) override;

 protected:
  struct Choice {
    ParsedOutput output;
    std::vector<std::string> call_ids;  // of output.tool_calls
    std::string replay_key;             // an opaque key of this turn
    std::vector<AnswerToken> tokens;    // with log probabilities
    AnswerEnd end;
    bool has_ended = false;
    bool has_called = false;   // a call began, whether or not it became whole
    std::int64_t sampled = 0;  // tokens so far, whether or not there is text of them
    Json trace = Json::object();
  };

  struct Usage {
    std::int64_t prompt = 0, cached = 0, completion = 0, reasoning = 0;
  };

  // What a protocol says. All are called with the lock held.
  virtual std::string call_id_prefix() const { return "call_"; }
  /// The stream's headers are out.
  virtual void stream_begin() {}
  /// The prompt is being read, or has been; called before any piece.
  virtual void stream_prefill(const PrefillProgress&) {}
  virtual void stream_first_token(int /*choice*/) {}
  virtual void stream_piece(int choice, const AnswerPiece& piece) = 0;
  virtual void stream_choice_end(int /*choice*/) {}
  virtual void stream_end() = 0;
  /// Nothing was sent for a while; `since_event` seconds ago the client last got something that it counts.
  virtual void stream_silence(double since_event) = 0;
  virtual void stream_error(const ApiError& error) = 0;
  virtual Json whole() = 0;
  /// All answers are there, and nothing of it was said yet: what a next request may refer to is to be remembered now.
  virtual void settle() {}

  void submit(std::vector<Job> jobs);
  void send(std::string bytes);
  /// An event of server-sent events: with a name, or as data alone.
  void send_event(const std::string& name, const Json& data);
  void send_data(const Json& data);
  void send_comment();                         // is no event
  static constexpr double kChunkSeconds = 60;  // of silence until a chunk, not only a comment, is sent

  ApiState& api() const { return *api_; }
  const std::string& model() const { return model_; }
  bool is_stream() const { return is_stream_; }
  std::int64_t created() const { return created_; }
  Choice& choice(int i) { return choices_[static_cast<std::size_t>(i)]; }
  int choices() const { return static_cast<int>(choices_.size()); }
  Usage usage() const;
  /// Of the prompt, those that were in the cache, as far as it is known.
  std::int64_t cached() const { return cached_; }
  std::int64_t prompt_tokens() const { return prompt_tokens_; }
  /// What really ran.
  Json lockstep_object() const;
  Json timings() const;
  /// A protocol that expects no repeat of a turn has none remembered.
  void remember(Choice& choice, std::vector<std::string> keys);

  std::int64_t prompt_tokens_ = 0;  // of all prompts
  int answers_per_prompt_ = 1;
  Json seed_ = 0;  // as it is told

 private:
  using Clock = std::chrono::steady_clock;
  template <class Call>
  void guarded(Call call);
  void fail(const ApiError& error);
  void finish();
  void write_trace();

  ApiShared api_;
  std::shared_ptr<Exchange> exchange_;
  std::string model_;
  bool is_stream_;
  std::int64_t created_;

  std::mutex mutex_;
  std::atomic<bool> is_cancelled_ = false;
  std::vector<Choice> choices_;
  int left_ = 0;  // choices that have not ended
  bool is_over_ = false;
  bool has_prefilled_ = false;
  std::int64_t cached_ = 0;
  Clock::time_point last_event_;
  BegunAnswer begun_;
  Json trace_;  // null: none is kept
};

}  // namespace lockstep
