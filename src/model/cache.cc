#include "model/cache.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace lockstep {
namespace {

void check_saved(const char* what, std::size_t bytes, std::size_t expected) {
  if (bytes == expected) return;
  throw Error(Error::Kind::bad_file, std::string("saved ") + what + ": " + std::to_string(bytes) + " bytes, expected " +
                                         std::to_string(expected));
}

}  // namespace

RowLayout row_layout(const Config& config, Mode mode) {
  return {mode, config.head_width, config.rotary, config.index_width};
}

SequenceCache::SequenceCache(const Config& config, Mode mode, Ops& ops)
    : config_(&config), ops_(&ops), layout_(row_layout(config, mode)) {
  for (const LayerConfig& layer_config : config.layers) {
    Layer& layer = layers_.emplace_back();
    layer.ratio = layer_config.ratio;
    layer.window = Buffer(ops, layout_.row_bytes() * static_cast<std::size_t>(window_slots()));
    const std::size_t slots = static_cast<std::size_t>(pending_slots(layer.ratio));
    if (layer.ratio != 0) layer.pending = Buffer(ops, slots * pending_floats(layer.ratio) * sizeof(float));
    if (layer.ratio == 4) layer.key_pending = Buffer(ops, slots * key_pending_floats() * sizeof(float));
  }
}

SequenceCache SequenceCache::fork() const {
  SequenceCache copy(*config_, layout_.mode, *ops_);
  copy.length_ = length_;
  copy.floor_ = floor_;
  std::vector<Ops::Copy> copies;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer& from = layers_[l];
    Layer& to = copy.layers_[l];
    copies.push_back({to.window.bytes(), from.window.bytes(), from.window.size()});
    if (from.ratio != 0) copies.push_back({to.pending.bytes(), from.pending.bytes(), from.pending.size()});
    if (from.ratio == 4) copies.push_back({to.key_pending.bytes(), from.key_pending.bytes(), from.key_pending.size()});
    to.pages = from.pages;
    to.page_data = from.page_data;
    to.key_pages = from.key_pages;
    to.key_page_data = from.key_page_data;
    copy.publish(to.page_table, to.page_data, to.page_data.size());
    copy.publish(to.key_page_table, to.key_page_data, to.key_page_data.size());
  }
  ops_->copy({copies});
  return copy;
}

void SequenceCache::rewind(Position length) {
  LOCKSTEP_CHECK(length >= floor_ && length <= length_);
  length_ = length;
}

Position SequenceCache::pending_from(int ratio, Position length) {
  const Position window = length / ratio * ratio;
  return ratio == 4 ? std::max<Position>(0, window - 4) : window;
}

void SequenceCache::publish(Buffer& table, const std::vector<std::byte*>& data, std::size_t pages) {
  if (table.size() >= pages * sizeof(std::byte*)) return;
  table = Buffer(*ops_, 2 * pages * sizeof(std::byte*));
  if (!data.empty()) ops_->upload(table.bytes(), data.data(), data.size() * sizeof(std::byte*));
}

void SequenceCache::reserve_pages(std::vector<std::shared_ptr<Buffer>>& pages, std::vector<std::byte*>& data,
                                  Buffer& table, std::int64_t first_row, std::int64_t last_row, std::size_t row_bytes) {
  const std::size_t bytes = row_bytes * kPageRows;
  publish(table, data, static_cast<std::size_t>((last_row + kPageRows - 1) / kPageRows));
  for (std::int64_t page = first_row / kPageRows; page * kPageRows < last_row; ++page) {
    const std::size_t index = static_cast<std::size_t>(page);
    if (index < pages.size() && pages[index].use_count() == 1) continue;
    auto fresh = std::make_shared<Buffer>(*ops_, bytes);
    if (index < pages.size()) {
      const Ops::Copy clone{fresh->bytes(), pages[index]->bytes(), bytes};
      ops_->copy({{&clone, 1}});
      pages[index] = std::move(fresh);
    } else {
      pages.push_back(std::move(fresh));
      data.push_back(nullptr);
    }
    data[index] = pages[index]->bytes();
    ops_->upload(table.bytes() + index * sizeof(std::byte*), &data[index], sizeof(std::byte*));
  }
}

void SequenceCache::reserve(int count) {
  for (Layer& layer : layers_) {
    if (layer.ratio == 0) continue;
    const std::int64_t first = length_ / layer.ratio, last = (length_ + count) / layer.ratio;
    reserve_pages(layer.pages, layer.page_data, layer.page_table, first, last, layout_.row_bytes());
    if (layer.ratio == 4)
      reserve_pages(layer.key_pages, layer.key_page_data, layer.key_page_table, first, last, layout_.key_bytes());
  }
}

SequenceSlice SequenceCache::slice(int index, int first_row, int rows) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  SequenceSlice slice;
  slice.first_row = first_row;
  slice.rows = rows;
  slice.begin = length_;
  slice.window = layer.window.bytes();
  slice.window_slots = window_slots();
  slice.pending = layer.pending.floats();
  slice.key_pending = layer.key_pending.floats();
  slice.pending_slots = pending_slots(layer.ratio);
  slice.pages = reinterpret_cast<std::byte* const*>(layer.page_table.bytes());
  slice.key_pages = reinterpret_cast<std::byte* const*>(layer.key_page_table.bytes());
  return slice;
}

void SequenceCache::stage_copies(int index, int rows, const std::byte* window, const float* pending,
                                 const float* key_pending, std::vector<Ops::Copy>& copies) const {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const auto add = [&](std::byte* ring, int slots, const std::byte* stage, std::size_t entry) {
    const int kept = std::min(rows, slots);
    for (int i = 0; i < kept; ++i) {
      const Position position = length_ + rows - kept + i;
      copies.push_back({ring + static_cast<std::size_t>(position % slots) * entry,
                        stage + static_cast<std::size_t>(i) * entry, entry});
    }
  };
  add(layer.window.bytes(), window_slots(), window, layout_.row_bytes());
  if (layer.ratio != 0)
    add(layer.pending.bytes(), pending_slots(layer.ratio), reinterpret_cast<const std::byte*>(pending),
        pending_floats(layer.ratio) * sizeof(float));
  if (layer.ratio == 4)
    add(layer.key_pending.bytes(), pending_slots(4), reinterpret_cast<const std::byte*>(key_pending),
        key_pending_floats() * sizeof(float));
}

void SequenceCache::commit(int rows) {
  length_ += rows;
  floor_ = std::max(floor_, length_ - kSlack);
}

std::vector<std::byte> SequenceCache::contents() const {
  std::vector<std::byte> out;
  const auto append = [&](const std::byte* from, std::size_t bytes) {
    out.resize(out.size() + bytes);
    ops_->download(out.data() + out.size() - bytes, from, bytes);
  };
  for (const Layer& layer : layers_) {
    for (Position p = std::max<Position>(0, length_ - config_->window + 1); p < length_; ++p)
      append(layer.window.bytes() + static_cast<std::size_t>(p % window_slots()) * layout_.row_bytes(),
             layout_.row_bytes());
    if (layer.ratio == 0) continue;
    for (Position p = pending_from(layer.ratio, length_); p < length_; ++p) {
      const std::size_t slot = static_cast<std::size_t>(p % pending_slots(layer.ratio));
      const std::size_t entry = pending_floats(layer.ratio) * sizeof(float);
      append(layer.pending.bytes() + slot * entry, entry);
      const std::size_t key_entry = key_pending_floats() * sizeof(float);
      if (layer.ratio == 4) append(layer.key_pending.bytes() + slot * key_entry, key_entry);
    }
    for (std::int64_t c = 0; c < length_ / layer.ratio; ++c) {
      append(layer.page_data[c / kPageRows] + static_cast<std::size_t>(c % kPageRows) * layout_.row_bytes(),
             layout_.row_bytes());
      if (layer.ratio == 4)
        append(layer.key_page_data[c / kPageRows] + static_cast<std::size_t>(c % kPageRows) * layout_.key_bytes(),
               layout_.key_bytes());
    }
  }
  return out;
}

std::size_t SequenceCache::rows_bytes(const Config& config, Mode mode, Position from, Position to) {
  const RowLayout layout = row_layout(config, mode);
  std::size_t bytes = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.ratio == 0) continue;
    const auto rows = static_cast<std::size_t>(to / layer.ratio - from / layer.ratio);
    bytes += rows * (layout.row_bytes() + (layer.ratio == 4 ? layout.key_bytes() : 0));
  }
  return bytes;
}

std::size_t SequenceCache::rings_bytes(const Config& config, Mode mode, Position floor, Position length) {
  const RowLayout layout = row_layout(config, mode);
  std::size_t bytes = 0;
  for (const LayerConfig& layer : config.layers) {
    bytes += layout.row_bytes() * static_cast<std::size_t>(length - std::max<Position>(0, floor - config.window + 1));
    if (layer.ratio == 0) continue;
    const auto entries = static_cast<std::size_t>(length - pending_from(layer.ratio, floor));
    bytes += entries * sizeof(float) * static_cast<std::size_t>(layer.ratio == 4 ? 4 : 2) * layout.width;
    if (layer.ratio == 4) bytes += entries * sizeof(float) * 4 * layout.key_width;
  }
  return bytes;
}

void SequenceCache::visit_rows(Position from, Position to, const Visit& visit) const {
  const auto pages = [&](const std::vector<std::byte*>& data, Position first, Position last, std::size_t row_bytes) {
    for (Position row = first; row < last;) {
      const Position end = std::min(last, (row / kPageRows + 1) * kPageRows);
      visit(data[static_cast<std::size_t>(row / kPageRows)] + static_cast<std::size_t>(row % kPageRows) * row_bytes,
            static_cast<std::size_t>(end - row) * row_bytes);
      row = end;
    }
  };
  for (const Layer& layer : layers_) {
    if (layer.ratio == 0) continue;
    pages(layer.page_data, from / layer.ratio, to / layer.ratio, layout_.row_bytes());
    if (layer.ratio == 4) pages(layer.key_page_data, from / layer.ratio, to / layer.ratio, layout_.key_bytes());
  }
}

void SequenceCache::visit_rings(Position floor, Position length, const Visit& visit) const {
  const auto ring = [&](std::byte* data, int slots, std::size_t entry, Position first) {
    LOCKSTEP_CHECK(length - first <= slots);
    for (Position p = first; p < length;) {
      const Position slot = p % slots, count = std::min(length - p, slots - slot);
      visit(data + static_cast<std::size_t>(slot) * entry, static_cast<std::size_t>(count) * entry);
      p += count;
    }
  };
  for (const Layer& layer : layers_) {
    ring(layer.window.bytes(), window_slots(), layout_.row_bytes(), std::max<Position>(0, floor - config_->window + 1));
    if (layer.ratio == 0) continue;
    const Position first = pending_from(layer.ratio, floor);
    ring(layer.pending.bytes(), pending_slots(layer.ratio), pending_floats(layer.ratio) * sizeof(float), first);
    if (layer.ratio == 4)
      ring(layer.key_pending.bytes(), pending_slots(4), key_pending_floats() * sizeof(float), first);
  }
}

std::vector<std::byte> SequenceCache::save_rows(Position from, Position to) const {
  LOCKSTEP_CHECK(0 <= from && from <= to && to <= length_);
  std::vector<std::byte> out(rows_bytes(*config_, layout_.mode, from, to));
  std::size_t at = 0;
  visit_rows(from, to, [&](std::byte* data, std::size_t bytes) {
    ops_->download(out.data() + at, data, bytes);
    at += bytes;
  });
  LOCKSTEP_CHECK(at == out.size());
  return out;
}

std::vector<std::byte> SequenceCache::save_rings() const {
  std::vector<std::byte> out(rings_bytes(*config_, layout_.mode, floor_, length_));
  std::size_t at = 0;
  visit_rings(floor_, length_, [&](std::byte* data, std::size_t bytes) {
    ops_->download(out.data() + at, data, bytes);
    at += bytes;
  });
  LOCKSTEP_CHECK(at == out.size());
  return out;
}

void SequenceCache::restore_rows(Position to, std::span<const std::byte> rows) {
  LOCKSTEP_CHECK(to >= length_ && floor_ == length_);
  check_saved("rows", rows.size(), rows_bytes(*config_, layout_.mode, length_, to));
  reserve(static_cast<int>(to - length_));
  std::size_t at = 0;
  visit_rows(length_, to, [&](std::byte* data, std::size_t bytes) {
    ops_->upload(data, rows.data() + at, bytes);
    at += bytes;
  });
  length_ = floor_ = to;
}

void SequenceCache::restore_rings(Position floor, std::span<const std::byte> rings) {
  LOCKSTEP_CHECK(std::max<Position>(0, length_ - kSlack) <= floor && floor <= length_ && floor_ == length_);
  check_saved("rings", rings.size(), rings_bytes(*config_, layout_.mode, floor, length_));
  std::size_t at = 0;
  visit_rings(floor, length_, [&](std::byte* data, std::size_t bytes) {
    ops_->upload(data, rings.data() + at, bytes);
    at += bytes;
  });
  floor_ = floor;
}

std::size_t SequenceCache::plan_bytes(const Config& config, Mode mode, std::int64_t length) {
  const RowLayout layout = row_layout(config, mode);
  std::size_t bytes = 0;
  for (const LayerConfig& layer : config.layers) {
    bytes += layout.row_bytes() * static_cast<std::size_t>(config.window + kSlack);
    if (layer.ratio == 0) continue;
    const std::size_t slots = static_cast<std::size_t>(pending_slots(layer.ratio));
    const std::size_t pages = static_cast<std::size_t>((length / layer.ratio + kPageRows - 1) / kPageRows);
    bytes += slots * sizeof(float) * static_cast<std::size_t>(layer.ratio == 4 ? 4 : 2) * config.head_width;
    bytes += pages * kPageRows * layout.row_bytes();
    if (layer.ratio == 4)
      bytes += slots * sizeof(float) * 4 * config.index_width + pages * kPageRows * layout.key_bytes();
  }
  return bytes;
}

std::size_t SequenceCache::memory_bytes() const {
  std::size_t total = 0;
  visit_memory([&](const void*, std::size_t bytes) { total += bytes; });
  return total;
}

void SequenceCache::visit_memory(const std::function<void(const void*, std::size_t)>& visit) const {
  const auto tell = [&](const Buffer& buffer) {
    if (buffer.size() > 0) visit(buffer.bytes(), buffer.size());
  };
  for (const Layer& layer : layers_) {
    tell(layer.window);
    tell(layer.pending);
    tell(layer.key_pending);
    for (const auto& page : layer.pages) tell(*page);
    for (const auto& page : layer.key_pages) tell(*page);
  }
}

}  // namespace lockstep
