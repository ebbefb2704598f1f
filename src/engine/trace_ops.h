// Ops that pass everything on to a back end and keep a hash of every row that every op writes, so that two ways through
// the same tokens can be laid side by side.
//
// A step is the same sequence of ops whatever its tokens are, so the n-th row that ops write for a token means the same
// on every path: that number is the row's place. A row that a path does not write (a token that left no ring entry) has
// no hash. Nothing is recorded or run side by side, and every op is waited for: this is for looking, not for speed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/forwarding_ops.h"

namespace lockstep {

class TraceOps final : public ForwardingOps {
 public:
  /// What stands at a place.
  struct Place {
    std::string op, part;
    OpOutput::Element element = OpOutput::Element::f32;
    StepPhase phase = StepPhase::none;
    int layer = -1;
    int slot = 0;  // of rows that a token has several of: experts
  };
  static constexpr std::uint64_t kNone = 0;  // no hash

  explicit TraceOps(std::unique_ptr<Ops> inner);

  /// The rows of the ops that follow are those of the tokens from position `first` on, at the beginning of a step, or
  /// of logits read behind it.
  void begin_step(Position first, int rows);
  void begin_logits(Position first, int rows);
  /// From now on keeps the bytes at this place of this token, too.
  void capture(Position position, std::size_t place);

  const std::vector<Place>& places() const { return places_; }
  /// By position, then by place; may be shorter than places().
  const std::vector<std::vector<std::uint64_t>>& hashes() const { return hashes_; }
  const std::vector<std::byte>& captured() const { return captured_; }

  void enter(StepPhase phase, int layer) override;
  void run(std::span<const std::uint64_t> key, const std::function<void()>& body) override;
  void run_both(const std::function<void()>& first, const std::function<void()>& second) override;
  void compress(const Slices& slices, ConstRows values, ConstRows gates, const CompressorSpec& spec,
                const RowLayout& layout) override;
  void select_rows(Selection out, const Slices& slices, ConstRows queries, ConstRows head_weights, int ratio, int top_k,
                   const RowLayout& layout) override;
  void pack_window(std::byte* stage, const Slices& slices, ConstRows rows, const RowLayout& layout) override;
  void keep_pending(float* stage, const Slices& slices, ConstRows values, ConstRows gates) override;
  void keep_rows(const KeptRows& rows, const Slices& slices, const RowLayout& layout) override;

 protected:
  void after(const OpCall& call) override;

 private:
  std::size_t new_place(const char* op, const char* part, OpOutput::Element element, int slot);
  void keep(std::size_t place, Position position, std::span<const std::byte> row);
  void look_at_compressed(const Slices& slices, const CompressorSpec& spec, const RowLayout& layout);
  void look_at_window(const std::byte* stage, const Slices& slices, const RowLayout& layout);
  void look_at_pending(const float* stage, const Slices& slices, int width);
  /// Rows of the last tokens of a slice, one after the other in the back end's memory.
  void keep_stage(const char* op, OpOutput::Element element, const std::byte* stage, const Slices& slices, int slots,
                  std::size_t row_bytes);

  std::unique_ptr<Ops> owned_;
  std::vector<Place> places_;
  std::size_t next_ = 0;  // place
  std::optional<std::size_t> logits_place_;
  std::vector<std::vector<std::uint64_t>> hashes_;
  Position first_ = 0;
  int rows_ = 0;
  StepPhase phase_ = StepPhase::none;
  int layer_ = -1;
  std::optional<std::pair<Position, std::size_t>> wanted_;
  std::vector<std::byte> captured_;
  std::vector<std::byte> host_;
};

}  // namespace lockstep
