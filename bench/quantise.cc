// Errors and speed of the quantisers: the table of docs/quantising.md. `bench_quantise [NAME...]` for some formats.
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <string_view>

#include "../tests/quantise_table.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  fmt::print("{:<20}", "format");
  for (const std::string_view name : test::kTableColumnNames) fmt::print("{:>18}", name);
  fmt::print("{:>16}{:>14}\n", "Mvalues/s/core", "with weights");
  for (const test::ReferenceErrors& reference : test::kReferenceErrors) {
    const std::string_view name = info_of(reference.dtype).name;
    if (argc > 1 && std::find(argv + 1, argv + argc, name) == argv + argc) continue;
    const Quantiser quantiser(reference.dtype);
    fmt::print("{:<20}", name);
    for (int column = 0; column < test::kTableColumns; ++column) {
      const double error = test::table_error(quantiser, column);
      const double bar = static_cast<double>(reference.error[column]);
      fmt::print("{:>9.5f}/{:.5f}{}", error, bar, error > bar * 1.005 ? '!' : ' ');
    }
    const std::vector<float> rows = test::table_rows(0), importance = test::table_importance();
    for (const bool weighted : {false, true}) {
      std::vector<std::byte> bytes(row_bytes(reference.dtype, test::kTableWidth));
      const std::clock_t start = std::clock();  // of the processor: other programs do not count
      for (std::size_t at = 0; at < rows.size(); at += test::kTableWidth)
        quantiser.quantise_row(std::span(rows).subspan(at, test::kTableWidth),
                               weighted ? std::span<const float>(importance) : std::span<const float>(), bytes.data());
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      fmt::print("{:>15.1f}", static_cast<double>(rows.size()) / seconds / 1e6);
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
}
