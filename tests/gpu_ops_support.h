// What the tests of ops on a device share: both back ends, and the operands of a product.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "gpu_support.h"
#include "numerics/round.h"

namespace lockstep {

using testing::BackEnds;
using testing::random_floats;
using testing::random_rows;
using testing::Twin;
using testing::TwinRounded;

class GpuOps : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ends_ = new BackEnds; }
  static void TearDownTestSuite() {
    delete ends_;
    ends_ = nullptr;
  }
  /// Runs an op on both sides.
  static void on_both(const std::function<void(Ops&)>& body) {
    body(*ends_->loops);
    body(*ends_->device);
    ends_->device->synchronize();
  }
  static Rows rows_of(const Twin<float>& twin, const Ops& ops, int rows, int width) {
    return {twin.at(ops), rows, width, width};
  }
  static BackEnds* ends_;
};
inline BackEnds* GpuOps::ends_ = nullptr;

class GpuProduct : public GpuOps, public ::testing::WithParamInterface<DTypeInfo> {
 protected:
  /// What a product has: a weight of `planes`, its input in both forms.
  struct Operands {
    Operands(DType dtype, int rows, int width, int planes, int x_rows, int x_width)
        : bytes(random_rows(dtype, width, rows * planes, static_cast<std::uint64_t>(width))),
          values(*ends_, random_floats(static_cast<std::size_t>(x_rows) * x_width, static_cast<std::uint64_t>(x_rows))),
          rounded(*ends_, x_rows, x_width),
          x_rows_(x_rows),
          x_width_(x_width) {
      host.dtype = dtype;
      host.width = width;
      host.rows = rows;
      host.planes = planes;
      host.data = bytes.data();
      host.row_bytes = row_bytes(dtype, width);
      device = ends_->device->prepare(host);
      if (x_width % 32 == 0)
        on_both([&](Ops& ops) { ops.round(rounded.at(ops), rows_of(values, ops, x_rows, x_width)); });
    }
    const Weight& weight(const Ops& ops) const { return &ops == ends_->loops.get() ? host : device; }
    Input input(const Ops& ops) const { return {rows_of(values, ops, x_rows_, x_width_), rounded.at(ops)}; }
    std::vector<std::byte> bytes;
    Twin<float> values;
    TwinRounded rounded;
    Weight host, device;
    int x_rows_, x_width_;
  };
  static bool allows(int width) { return width % GetParam().block_values == 0; }
};

}  // namespace lockstep
