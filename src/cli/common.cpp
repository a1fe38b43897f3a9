#include "src/cli/common.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>

namespace marey::cli {

void print_error(std::string_view command, std::string_view message) {
  fmt::print(stderr, "marey {}: {}\n", command, message);
}

std::vector<trace::Trace> load(std::string_view command, const std::vector<std::string>& paths, const trace::ReadOptions& options,
                               int* exit_code) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    auto found = trace::find_traces(path);
    if (!found.is_ok()) {
      print_error(command, found.status().message());
      *exit_code = std::max(*exit_code, kExitMissing);
      continue;
    }
    if (found.value().empty()) {
      print_error(command, fmt::format("no .pftrace file in '{}'", path));
      *exit_code = std::max(*exit_code, kExitMissing);
    }
    files.insert(files.end(), found.value().begin(), found.value().end());
  }
  std::vector<trace::Trace> traces;
  std::set<std::filesystem::path> seen;  // a file that two paths lead to counts once
  for (const std::string& file : files) {
    std::error_code error;
    const auto real = std::filesystem::weakly_canonical(file, error);
    if (!error && !seen.insert(real).second) continue;
    auto read = trace::read_trace(file, options);
    if (!read.is_ok()) {
      print_error(command, read.status().message());
      *exit_code = std::max(*exit_code, read.status().code() == Code::kDamaged ? kExitDamaged : kExitMissing);
      continue;
    }
    if (read.value().state == trace::TraceState::kDamaged) {
      print_error(command, fmt::format("'{}' is damaged: {}; what could be read follows", file, read.value().state_reason));
      *exit_code = kExitDamaged;
    }
    traces.push_back(std::move(read).value());
  }
  return traces;
}

std::string human_time(std::int64_t ns) {
  const auto value = static_cast<double>(ns);
  const double size = std::abs(value);
  const auto digits = [](double v) { return std::abs(v) < 10 ? 2 : std::abs(v) < 100 ? 1 : 0; };
  const auto in = [&](double scale, const char* unit) { return fmt::format("{:.{}f} {}", value / scale, digits(value / scale), unit); };
  if (size < 1e3) return fmt::format("{} ns", ns);
  if (size < 999.5e3) return in(1e3, "us");
  if (size < 999.5e6) return in(1e6, "ms");
  return in(1e9, "s");
}

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const auto value = static_cast<double>(bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", value / 1024);
  if (bytes < 1024ULL * 1024 * 1024) return fmt::format("{:.1f} MiB", value / (1024 * 1024));
  return fmt::format("{:.1f} GiB", value / (1024.0 * 1024 * 1024));
}

std::string json_text(const Json& value, int indent) {
  // Text in traces is valid UTF-8 when Marey wrote it; a damaged file's may not be, and is still printed.
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right) {
  // Width in characters: UTF-8 continuation bytes take no column.
  const auto width_of = [](const std::string& text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  };
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - width_of(row[i]), ' ');
      if (i > 0) line += "  ";
      line += i < right.size() && right[i] ? pad + row[i] : row[i] + pad;
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

std::string cell(std::string_view name, std::size_t max_chars) {
  std::string text;
  std::size_t chars = 0;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0U) != 0x80U && chars++ == max_chars) return text + "...";
    if (byte < 0x20 || byte == 0x7F) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text.push_back(c);
    }
  }
  return text;
}

Json number_or_null(const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(nullptr); }
Json text_or_null(const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); }

}  // namespace marey::cli
