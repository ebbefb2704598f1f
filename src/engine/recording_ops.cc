#include "engine/recording_ops.h"

#include <utility>

#include "base/error.h"

namespace lockstep {

void RecordingOps::record(const Weight& weight, std::string name, std::int64_t planes) {
  entries_.emplace(weight.data, std::pair(std::move(name), ImportanceEntry(weight.width, planes)));
}

ImportanceEntry* RecordingOps::find(const Weight& w) {
  const auto at = entries_.find(w.data);
  return at == entries_.end() ? nullptr : &at->second.second;
}

const float* RecordingOps::host_row(const ConstRows& x, int row) {
  row_.resize(static_cast<std::size_t>(x.width));
  download(row_.data(), x.row(row), row_.size() * sizeof(float));
  return row_.data();
}

void RecordingOps::matmul(Rows out, const Weight& w, const Input& x) {
  if (ImportanceEntry* entry = find(w); entry != nullptr) {
    LOCKSTEP_CHECK(x.values.data != nullptr && x.values.width == entry->width);
    for (int row = 0; row < x.values.rows; ++row) entry->add(0, host_row(x.values, row));
  }
  ForwardingOps::matmul(out, w, x);
}

void RecordingOps::matmul_grouped(Rows out, const Weight& w, const Input& x, int groups) {
  if (ImportanceEntry* entry = find(w); entry != nullptr) {
    LOCKSTEP_CHECK(x.values.data != nullptr && x.values.width == entry->width * groups && entry->planes() == groups);
    for (int row = 0; row < x.values.rows; ++row) {
      const float* values = host_row(x.values, row);
      for (int group = 0; group < groups; ++group) entry->add(group, values + group * entry->width);
    }
  }
  ForwardingOps::matmul_grouped(out, w, x, groups);
}

void RecordingOps::matmul_experts(Rows out, const Weight& w, const Input& x, const Route& route, bool x_per_slot) {
  if (ImportanceEntry* entry = find(w); entry != nullptr) {
    LOCKSTEP_CHECK(x.values.data != nullptr && x.values.width == entry->width);
    experts_.resize(static_cast<std::size_t>(route.rows * route.used));
    download(experts_.data(), route.expert, experts_.size() * sizeof(std::int32_t));
    for (int row = 0; row < route.rows; ++row) {
      const float* values = x_per_slot ? nullptr : host_row(x.values, row);
      for (int s = 0; s < route.used; ++s) {
        const int slot = row * route.used + s;
        entry->add(experts_[static_cast<std::size_t>(slot)], x_per_slot ? host_row(x.values, slot) : values);
      }
    }
  }
  ForwardingOps::matmul_experts(out, w, x, route, x_per_slot);
}

}  // namespace lockstep
