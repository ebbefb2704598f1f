// Measures what the order of sums costs on a GPU, checking every kernel's bits on the way. Prints the report last.
// Arguments: sections to run, of matvec thin tile f16-matvec f16-tile; none means all. Ends with 1 if any bit was
// wrong.
#include <cstring>

#include "harness.h"

int main(int argc, char** argv) {
  using namespace lockstep::law;
  constexpr struct {
    const char* name;
    void (*run)(Report&);
  } kSections[] = {
      {"matvec", measure_matvec_q8},      {"thin", measure_thin_q8},      {"tile", measure_tile_q8},
      {"f16-matvec", measure_matvec_f16}, {"f16-tile", measure_tile_f16},
  };
  Report report;
  for (const auto& section : kSections) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], section.name) == 0;
    if (wanted) section.run(report);
  }
  report.print();
  return report.total_wrong() == 0 ? 0 : 1;
}
