#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/trace/reader.h"

namespace marey::cli {

// Exit codes, the same for every command; `--help` of each names them.
constexpr int kExitOk = 0;
constexpr int kExitMissing = 1;  ///< something asked for is missing or not usable
constexpr int kExitUsage = 2;    ///< the command line itself is wrong
constexpr int kExitDamaged = 3;  ///< a trace is damaged; what could be read was printed
constexpr std::string_view kExitCodesHelp =
    "Exit codes: 0 ok, 1 something asked for is missing or not usable, 2 wrong usage, 3 a trace is damaged (what could "
    "be "
    "read is printed).";

/// JSON keeps the order in which keys are written.
using Json = nlohmann::ordered_json;

/// Prints to stderr: "marey <command>: <message>".
void print_error(std::string_view command, std::string_view message);

/// Reads every trace at the paths (files or folders); what cannot be read is told on stderr and raises `exit_code`.
std::vector<trace::Trace> load(std::string_view command, const std::vector<std::string>& paths,
                               const trace::ReadOptions& options, int* exit_code);

/// "1.23 ms": three significant digits in the unit that fits.
std::string human_time(std::int64_t ns);
std::string human_bytes(std::uint64_t bytes);
std::string json_text(const Json& value, int indent = -1);

/// Rows of text as aligned columns; the first row is the head. Numbers (columns named in `right`) are right-aligned.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right);

/// A name for one cell of text: control characters escaped, long ones cut.
std::string cell(std::string_view name, std::size_t max_chars = 60);

/// Optional number as JSON: null when unset.
Json number_or_null(const std::optional<std::int64_t>& value);
/// "" as null.
Json text_or_null(const std::string& value);

// One function a subcommand: declares it and its flags; running it sets *exit_code.
void add_plan(CLI::App& app, int* exit_code);
void add_info(CLI::App& app, int* exit_code);
void add_units(CLI::App& app, int* exit_code);
void add_top(CLI::App& app, int* exit_code);
void add_dump(CLI::App& app, int* exit_code);
void add_doctor(CLI::App& app, int* exit_code);

}  // namespace marey::cli
