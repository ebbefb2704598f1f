#include "cli/dequantize.h"

#include <fmt/format.h>

#include <istream>
#include <ostream>
#include <vector>

#include "base/error.h"
#include "tensor/dequantize.h"

namespace lockstep {

int run_dequantize(DType dtype, std::istream& in, std::ostream& out) {
  const DTypeInfo& info = info_of(dtype);
  if (dtype == DType::i32) {
    throw Error(Error::Kind::bad_argument, "dequantize: i32 holds indices, expected a type of weights");
  }
  if (dtype == DType::rocmfp3_mix || dtype == DType::rocmfp2_mix) {
    throw Error(Error::Kind::bad_argument,
                fmt::format("dequantize: {} needs a side table, expected a type whose blocks stand alone", info.name));
  }
  constexpr std::size_t kBlocksAtOnce = 1024;
  const std::size_t block_bytes = static_cast<std::size_t>(info.block_bytes);
  const std::size_t block_values = static_cast<std::size_t>(info.block_values);
  std::vector<std::byte> blocks(kBlocksAtOnce * block_bytes);
  std::vector<float> values(kBlocksAtOnce * block_values);
  std::size_t total = 0;
  while (in && out) {
    in.read(reinterpret_cast<char*>(blocks.data()), static_cast<std::streamsize>(blocks.size()));
    const std::size_t got = static_cast<std::size_t>(in.gcount());
    total += got;
    const std::size_t width = got / block_bytes * block_values;
    dequantize_row(dtype, blocks.data(), static_cast<std::int64_t>(width), values.data());
    out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(width * sizeof(float)));
  }
  if (in.bad()) throw Error(Error::Kind::io, fmt::format("dequantize: reading failed after {} bytes", total));
  if (!out.flush()) throw Error(Error::Kind::io, "dequantize: writing failed");
  if (total % block_bytes != 0) {
    throw Error(
        Error::Kind::bad_argument,
        fmt::format("dequantize: input of {} bytes is not a whole number of {} blocks of {} bytes: {} left over", total,
                    info.name, block_bytes, total % block_bytes));
  }
  return 0;
}

}  // namespace lockstep
