#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "src/cli/common.h"

int main(int argc, char** argv) {
  using namespace marey::cli;
  // `marey dump ... | head` ends quietly.
  std::signal(SIGPIPE, SIG_DFL);
  CLI::App app{"Marey records exactly the training steps you choose. This command plans schedules and reads what was recorded."};
  app.name("marey");
  app.set_version_flag("--version", std::string("marey ") + MAREY_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(std::string("Example: marey units marey-traces/\n") + std::string(kExitCodesHelp));
  int exit_code = kExitOk;
  add_plan(app, &exit_code);
  add_info(app, &exit_code);
  add_units(app, &exit_code);
  add_top(app, &exit_code);
  add_dump(app, &exit_code);
  add_doctor(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 answers --help and --version this way too, with code 0.
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "marey: {}\n", error.what());
    return kExitMissing;
  }
  // What is still in the buffer may meet a full disk.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "marey: cannot write the output: {}\n", std::strerror(errno));
    return kExitMissing;
  }
  return exit_code;
}
