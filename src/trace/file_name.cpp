#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "src/trace/trace_info.h"

namespace marey::trace {
namespace {

/// File systems take 255 bytes; ".partial" and a little room for what other tools append are left.
constexpr std::size_t kMaxNameBytes = 231;

/// Runs of characters outside [0-9A-Za-z.=+-] become one '-'; '_' separates the parts of a name.
std::string safe(std::string_view text, std::size_t max_bytes) {
  std::string result;
  for (const char c : text) {
    const bool keep = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' ||
                      c == '=' || c == '+' || c == '-';
    if (keep) {
      result.push_back(c);
    } else if (result.empty() || result.back() != '-') {
      result.push_back('-');
    }
    if (result.size() >= max_bytes) break;
  }
  while (!result.empty() && (result.back() == '-' || result.back() == '.')) result.pop_back();
  while (!result.empty() && (result.front() == '-' || result.front() == '.')) result.erase(0, 1);
  return result;
}

/// With the free parts (role, parallel ranks, host) cut at `limit` bytes.
std::string name_of(const TraceInfo& info, std::size_t limit) {
  std::string name;
  const auto add = [&name](std::string_view part) {
    if (part.empty()) return;
    if (!name.empty()) name.push_back('_');
    name.append(part);
  };
  add(safe(info.role, limit));
  if (info.kind == TraceKind::kSkeleton) add("skeleton");
  // Windows over train steps carry the step's number once, as their unit.
  const bool own_unit = info.unit == schedule::Unit::kTrainStep;
  if (info.train_step && !(own_unit && info.kind == TraceKind::kWindow)) add(fmt::format("step{}", *info.train_step));
  if (info.kind == TraceKind::kWindow && info.unit && info.first_unit) {
    const std::string unit = safe(schedule::unit_name(*info.unit), 32);
    const std::int64_t last = info.last_unit.value_or(*info.first_unit);
    add(last == *info.first_unit ? fmt::format("{}{}", unit, *info.first_unit)
                                 : fmt::format("{}{}-{}", unit, *info.first_unit, last));
  }
  add(fmt::format("rank{}-of-{}", info.rank, info.world_size));
  add(safe(info.parallel, limit));
  add(safe(info.host, limit));
  add(fmt::format("pid{}", info.pid));
  const auto seconds = static_cast<std::time_t>(info.begin_unix_ns / 1'000'000'000);
  add(fmt::format("{:%Y%m%dT%H%M%S}.{:03}", fmt::localtime(seconds), info.begin_unix_ns / 1'000'000 % 1000));
  add(safe(info.id, 16));
  return name + ".pftrace";
}

}  // namespace

std::string file_name(const TraceInfo& info) {
  for (const std::size_t limit : {48, 32, 16}) {
    std::string name = name_of(info, limit);
    if (name.size() <= kMaxNameBytes) return name;
  }
  return name_of(info, 4);
}

}  // namespace marey::trace
