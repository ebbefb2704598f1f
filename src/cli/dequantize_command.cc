// `lockstep dequantize`: the command around run_dequantize.
#include <iostream>
#include <memory>
#include <string>

#include "base/error.h"
#include "cli/command.h"
#include "cli/dequantize.h"

namespace lockstep {

void add_dequantize(CLI::App& app, Run& run) {
  auto type = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("dequantize", "Raw blocks on stdin, little-endian f32 on stdout");
  command->add_option("--type", *type, "the blocks' format, for instance q4_K")->required();
  command->callback([type, &run] {
    run = [type] {
      const std::optional<DType> dtype = dtype_named(*type);
      if (!dtype) {
        std::string known;
        for (const DTypeInfo& info : all_dtypes()) known += (known.empty() ? "" : ", ") + std::string(info.name);
        throw Error(Error::Kind::bad_argument, "--type: \"" + *type + "\" is no format, expected one of " + known);
      }
      std::ios::sync_with_stdio(false);
      return run_dequantize(*dtype, std::cin, std::cout);
    };
  });
}

}  // namespace lockstep
