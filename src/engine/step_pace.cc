#include "engine/step_pace.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr double kFade = 0.8;         // of what was measured before, at every measurement
constexpr double kLeastSlope = 0.05;  // of the mean seconds a row: a line that noise has made flat is not believed

}  // namespace

void StepPace::Line::add(double r, double s) {
  weight = kFade * weight + 1;
  rows = kFade * rows + r;
  seconds = kFade * seconds + s;
  rows_rows = kFade * rows_rows + r * r;
  rows_seconds = kFade * rows_seconds + r * s;
}

double StepPace::Line::per_row() const {
  const double mean = seconds / rows;
  const double spread = rows_rows * weight - rows * rows;
  // Steps of one length do not tell what is fixed.
  if (spread < 1e-3 * rows * rows) return mean;
  return std::clamp((rows_seconds * weight - rows * seconds) / spread, kLeastSlope * mean, mean);
}

double StepPace::Line::fixed() const { return weight == 0 ? 0 : std::max(0.0, (seconds - per_row() * rows) / weight); }

StepPace::StepPace(double step_seconds, double share, int max_rows)
    : step_seconds_(step_seconds), earned_(share / (1 - share)), max_rows_(max_rows) {
  if (!(share > 0 && share < 1))
    throw Error(Error::Kind::bad_argument, "prefill share: " + std::to_string(share) + ", expected above 0, below 1");
  if (!(step_seconds > 0))
    throw Error(Error::Kind::bad_argument, "step seconds: " + std::to_string(step_seconds) + ", expected above 0");
}

double StepPace::seconds_of(int rows) const {
  return alone_.weight == 0 ? 0 : alone_.fixed() + alone_.per_row() * rows;
}

double StepPace::decode_seconds(int decoders) const {
  const auto n = static_cast<std::size_t>(decoders);
  if (n < decode_.size() && decode_[n] > 0) return decode_[n];
  // The nearest that is known, fewer first: then prefill is given less rather than more.
  for (std::size_t i = std::min(n, decode_.size()); i-- > 0;)
    if (decode_[i] > 0) return decode_[i];
  for (std::size_t i = n; i < decode_.size(); ++i)
    if (decode_[i] > 0) return decode_[i];
  return 0;
}

int StepPace::rows(int decoders) const {
  const int room = max_rows_ - decoders;
  if (decoders == 0) {
    if (alone_.weight == 0) return std::min(room, kFirstRows);
    const double per_row = alone_.per_row(), fixed = alone_.fixed();
    const double rows = std::max(step_seconds_ - fixed, fixed) / per_row;
    return rows < room ? std::max(static_cast<int>(rows), 1) : room;
  }
  const double decode = decode_seconds(decoders);
  if (decode == 0 || room <= 0) return 0;  // the decoders alone: that is how it becomes known
  const int least = std::min(room, kLeastRows);
  const double per_row = beside_row_seconds();
  if (per_row <= 0) return least;
  const double rows = (credit_ + decode * earned_) / per_row;
  if (rows < least) return 0;
  return rows < room ? static_cast<int>(rows) : room;
}

double StepPace::beside_row_seconds() const {
  if (beside_rows_ > 0) return beside_seconds_ / beside_rows_;
  return alone_.weight == 0 ? 0 : alone_.per_row();
}

int StepPace::even_rows() const {
  if (alone_.weight == 0) return kLeastRows;
  const double rows = alone_.fixed() / alone_.per_row();
  return rows < max_rows_ ? std::max(static_cast<int>(rows), kLeastRows) : max_rows_;
}

void StepPace::measured(int rows, int decoders, double seconds) {
  if (decoders == 0) {
    alone_.add(rows, seconds);
    return;
  }
  if (rows == 0) {
    const auto n = static_cast<std::size_t>(decoders);
    if (decode_.size() <= n) decode_.resize(n + 1);
    decode_[n] = decode_[n] == 0 ? seconds : 0.75 * decode_[n] + 0.25 * seconds;
  }
  const double decode = rows == 0 ? seconds : std::min(seconds, decode_seconds(decoders));
  const double beside = seconds - decode;
  if (rows > 0) {
    beside_rows_ = kFade * beside_rows_ + rows;
    beside_seconds_ = kFade * beside_seconds_ + beside;
  }
  // What was not used is not saved for later beyond a chunk; nor is one slow step paid back for ever.
  const double allowance = decode * earned_;
  const double chunk = kLeastRows * beside_row_seconds();
  credit_ = std::clamp(credit_ + allowance - beside, -8 * std::max(allowance, chunk), std::max(allowance, chunk));
}

}  // namespace lockstep
