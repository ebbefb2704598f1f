// What one sequence remembers: a pure function of (weights, mode, tokens).
//
// Per layer: a ring of the last raw rows; rings of the last compressor inputs, kept a token each and never folded; and
// append-only pages of compressed rows (and indexer keys). The rings are kSlack longer than the model needs, so
// rewinding up to kSlack tokens moves counters only. Pages are shared between copies by reference count and cloned
// before a shared one is written, so a copy costs its rings alone.
//
// A step is a transaction: it writes compressed rows behind the counted ones and stages its ring entries elsewhere;
// commit() makes them count. A step that fails or is cancelled before that has changed nothing.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "model/config.h"
#include "ops/ops.h"

namespace lockstep {

inline constexpr int kSlack = 16;  // tokens that can be taken back without a snapshot

RowLayout row_layout(const Config& config, Mode mode);

/// Memory of a back end with one owner.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Ops& ops, std::size_t bytes) : ops_(&ops), data_(ops.allocate(bytes)), bytes_(bytes) {}
  ~Buffer() {
    if (data_ != nullptr) ops_->release(data_);
  }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(ops_, other.ops_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* bytes() const { return static_cast<std::byte*>(data_); }
  float* floats() const { return static_cast<float*>(data_); }
  std::size_t size() const { return bytes_; }

 private:
  Ops* ops_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class SequenceCache {
 public:
  /// An empty sequence. `config` and `ops` must outlive it. Throws Error::no_memory.
  SequenceCache(const Config& config, Mode mode, Ops& ops);
  SequenceCache(SequenceCache&&) = default;
  SequenceCache& operator=(SequenceCache&&) = default;

  /// A copy that shares the pages.
  SequenceCache fork() const;

  Mode mode() const { return layout_.mode; }
  Position length() const { return length_; }
  /// The least length that rewind() can go back to.
  Position rewind_floor() const { return floor_; }
  /// Forgets the tokens from `length` on; rewind_floor() <= length <= this->length(). Moves counters only.
  void rewind(Position length);

  /// The canonical bytes of the state: what decides all later logits, and nothing else. Equal for equal tokens.
  std::vector<std::byte> contents() const;
  /// Bytes held in the back end's memory (shared pages count in full).
  std::size_t memory_bytes() const;
  /// Tells `visit` every piece of that memory: what identifies it, so that shared pages can be counted once, and bytes.
  void visit_memory(const std::function<void(const void* identity, std::size_t bytes)>& visit) const;
  /// What memory_bytes() will be at `length` tokens.
  static std::size_t plan_bytes(const Config& config, Mode mode, std::int64_t length);

  // To keep states outside of the back end's memory, exactly: a restored one has the same contents(), rewinds as far
  // and goes on alike. A state is its compressed rows, which depend on the tokens alone and can be kept in pieces, and
  // its rings. Bytes saved in one mode of one model mean nothing to another.

  /// Bytes of the compressed rows and keys that tokens [from, to) complete.
  static std::size_t rows_bytes(const Config& config, Mode mode, Position from, Position to);
  /// Bytes of all that is saved of this state: rows and rings.
  std::size_t saved_bytes() const {
    return rows_bytes(*config_, layout_.mode, 0, length()) +
           rings_bytes(*config_, layout_.mode, rewind_floor(), length());
  }
  /// Those rows: layer by layer, a layer's rows before its keys. 0 <= from <= to <= length().
  std::vector<std::byte> save_rows(Position from, Position to) const;
  /// Bytes of the rings of a state of `length` tokens that rewinds to `floor`.
  static std::size_t rings_bytes(const Config& config, Mode mode, Position floor, Position length);
  /// What the rings hold of the tokens that length() and any rewind may need, oldest first: layer by layer the raw
  /// rows, the compressor inputs, the indexer's.
  std::vector<std::byte> save_rings() const;
  /// Appends the rows of tokens [length(), to) to a sequence that has nothing but restored rows. Until restore_rings()
  /// it is good for nothing else. Throws Error::no_memory, and Error::bad_file if these are not the bytes of so many.
  void restore_rows(Position to, std::span<const std::byte> rows);
  /// Makes the state whole, which then rewinds to `floor`; length() - kSlack <= floor <= length(). Throws
  /// Error::bad_file if these are not the bytes of such rings.
  void restore_rings(Position floor, std::span<const std::byte> rings);

  // For forward only.

  /// Makes pages for `count` more tokens, cloning shared ones that would be written. Throws Error::no_memory, with
  /// nothing changed that counts.
  void reserve(int count);
  /// The view of layer `layer` for rows [first_row, first_row + rows) of a step.
  SequenceSlice slice(int layer, int first_row, int rows) const;
  /// Where staged ring entries of the layer belong: appends copies from `window`, `pending`, `key_pending` as
  /// Ops::pack_window and keep_pending wrote them for a step of `rows` rows.
  void stage_copies(int layer, int rows, const std::byte* window, const float* pending, const float* key_pending,
                    std::vector<Ops::Copy>& copies) const;
  /// Counts the tokens of a step as part of the sequence, after the staged copies have been made.
  void commit(int rows);

  const RowLayout& layout() const { return layout_; }
  int window_slots() const { return config_->window + kSlack; }
  /// Ring entries of a compressor: what a rewind by kSlack may still need (128: an unfinished window; 4: and the one
  /// before).
  static int pending_slots(int ratio) { return ratio == 0 ? 0 : ratio == 4 ? 8 + kSlack : 128 + kSlack; }

 private:
  struct Layer {
    int ratio = 0;
    Buffer window, pending, key_pending;
    std::vector<std::shared_ptr<Buffer>> pages, key_pages;
    std::vector<std::byte*> page_data, key_page_data;  // where the pages are,
    Buffer page_table, key_page_table;                 // and the same lists in the back end's memory
  };

  /// Makes room for `pages` entries in the back end's copy of the list `data`; a new copy holds what the list holds.
  void publish(Buffer& table, const std::vector<std::byte*>& data, std::size_t pages);
  void reserve_pages(std::vector<std::shared_ptr<Buffer>>& pages, std::vector<std::byte*>& data, Buffer& table,
                     std::int64_t first_row, std::int64_t last_row, std::size_t row_bytes);
  /// The first compressor input that a state of `length` tokens needs.
  static Position pending_from(int ratio, Position length);
  /// Visits the places of what save_rows() and save_rings() save, in their order.
  using Visit = std::function<void(std::byte* data, std::size_t bytes)>;
  void visit_rows(Position from, Position to, const Visit& visit) const;
  void visit_rings(Position floor, Position length, const Visit& visit) const;
  /// Floats of one ring entry: values and gates, of both halves where windows overlap.
  std::size_t pending_floats(int ratio) const { return static_cast<std::size_t>(ratio == 4 ? 4 : 2) * layout_.width; }
  std::size_t key_pending_floats() const { return 4 * static_cast<std::size_t>(layout_.key_width); }

  const Config* config_;
  Ops* ops_;
  RowLayout layout_;
  Position length_ = 0;
  Position floor_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace lockstep
