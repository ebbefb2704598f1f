// A device that fails while answers run on it: they are told, none is taken any more, and the scheduler still stops.
#include <gtest/gtest.h>

#include <future>

#include "cpu/cpu_ops.h"
#include "engine/law_check.h"
#include "engine/scheduler.h"
#include "ops/forwarding_ops.h"

namespace lockstep {
namespace {

constexpr const char* kWhat = "device 0 (a fake): waiting for its work: an illegal memory access was encountered";

/// Fails at its so many-eth step, and at everything after that, as a device does.
class FailingOps final : public ForwardingOps {
 public:
  FailingOps(std::unique_ptr<Ops> ops, int good_steps)
      : ForwardingOps(*ops), owned_(std::move(ops)), good_steps_(good_steps) {}
  void run(std::span<const std::uint64_t> key, const std::function<void()>& body) override {
    ForwardingOps::run(key, body);
    --good_steps_;
  }
  void synchronize() override { fail_if_due(); }
  void download(void* to, const void* from, std::size_t bytes) override {
    fail_if_due();
    ForwardingOps::download(to, from, bytes);
  }

 private:
  void fail_if_due() const {
    if (good_steps_ < 0) throw Error(Error::Kind::device, kWhat);
  }
  std::unique_ptr<Ops> owned_;
  int good_steps_;
};

class Ending final : public Guide {
 public:
  bool on_token(const Sampled&) override { return true; }
  void on_end(const JobResult& result) override { result_.set_value(result); }
  std::future<JobResult> result() { return result_.get_future(); }

 private:
  std::promise<JobResult> result_;
};

TEST(DeviceFailure, ends_running_and_waiting_answers_with_its_words_and_refuses_others) {
  for (const int good_steps : {0, 3}) {
    EngineOptions model;
    model.synth = law_model_plan("nano-q2");
    model.max_rows = 64;
    Engine engine(model, std::make_unique<FailingOps>(cpu::make_cpu_ops({1, "auto"}), good_steps));
    SchedulerOptions options;
    options.slots = 2;
    options.context = 500;
    options.cache_bytes = 10'000'000;
    Scheduler scheduler(engine, options);
    EXPECT_TRUE(scheduler.status().device_failure.empty());
    const auto job = [&](const std::shared_ptr<Ending>& ending) {
      Job made;
      made.prompt = {1, 2, 3, 4};
      made.sampling.temperature = 0;
      made.limit = 400;
      made.guide = ending;
      return made;
    };
    std::vector<std::future<JobResult>> results;
    for (int i = 0; i < 4; ++i) {  // two run, two wait, unless the device has failed already
      const auto ending = std::make_shared<Ending>();
      auto result = ending->result();
      if (!scheduler.submit(job(ending)).has_value()) results.push_back(std::move(result));
    }
    ASSERT_FALSE(results.empty());
    for (auto& result : results) {
      const JobResult ended = result.get();
      EXPECT_EQ(ended.end, JobResult::End::failed);
      EXPECT_NE(ended.error.find("illegal memory access"), std::string::npos) << ended.error;
    }
    EXPECT_NE(scheduler.status().device_failure.find(kWhat), std::string::npos);
    EXPECT_EQ(scheduler.submit(job(std::make_shared<Ending>())), Scheduler::Refusal::stopping);
    scheduler.stop(5);
  }
}

}  // namespace
}  // namespace lockstep
