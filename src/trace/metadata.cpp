#include "src/trace/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/event/string_table.h"

namespace marey::trace {
namespace {

constexpr std::string_view kPrefix = "marey.";
constexpr std::size_t kMaxTextBytes = 16 * 1024;
constexpr std::size_t kMaxListEntries = 4096;  // a damaged index must not make us allocate without bound

/// Doubles travel as text: ChromeMetadata has no floating-point value.
std::string double_text(double value) {
  return fmt::format("{:.17g}", value);
}
double text_double(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::isfinite(value) ? value : 0;
}

class Builder {
 public:
  void text(std::string_view name, std::string_view value) {
    entries.push_back(
        {fmt::format("{}{}", kPrefix, name), MetadataEntry::Type::kString, event::clean_utf8(value, kMaxTextBytes), 0});
  }
  void number(std::string_view name, std::int64_t value) {
    entries.push_back({fmt::format("{}{}", kPrefix, name), MetadataEntry::Type::kInt, "", value});
  }
  void flag(std::string_view name, bool value) {
    entries.push_back({fmt::format("{}{}", kPrefix, name), MetadataEntry::Type::kBool, "", value ? 1 : 0});
  }
  std::vector<MetadataEntry> entries;
};

/// Splits "<list>.<index>[.<part>]" for one list name.
bool list_index(std::string_view name, std::string_view list, std::size_t* index, std::string_view* part) {
  if (!name.starts_with(list) || name.size() <= list.size() || name[list.size()] != '.') return false;
  name.remove_prefix(list.size() + 1);
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), *index);
  if (error != std::errc() || *index >= kMaxListEntries) return false;
  const auto rest = name.substr(static_cast<std::size_t>(end - name.data()));
  *part = rest.empty() ? rest : rest.substr(1);
  return true;
}

template <typename T>
T& at(std::vector<T>& list, std::size_t index) {
  if (list.size() <= index) list.resize(index + 1);
  return list[index];
}

}  // namespace

std::vector<MetadataEntry> to_metadata(const TraceInfo& info, bool sealed) {
  Builder b;
  b.text("version", info.marey_version);
  b.text("kind", info.kind == TraceKind::kSkeleton ? "skeleton" : "window");
  b.text("id", info.id);
  b.text("job", info.job);
  b.text("host", info.host);
  b.number("pid", info.pid);
  b.number("rank", info.rank);
  b.number("world_size", info.world_size);
  b.text("parallel", info.parallel);
  b.text("role", info.role);
  b.text("stage", info.stage);
  if (info.train_step) b.number("train_step", *info.train_step);
  if (info.unit) b.text("unit", schedule::unit_name(*info.unit));
  if (info.first_unit) b.number("first_unit", *info.first_unit);
  if (info.last_unit) b.number("last_unit", *info.last_unit);
  b.number("recorded_units", info.recorded_units);
  b.number("planned_units", info.planned_units);
  b.flag("complete", info.complete);
  b.text("end_reason", info.end_reason);
  b.text("schedule", schedule::to_string(info.schedule));
  for (std::size_t i = 0; i < info.contents.size(); ++i) b.text(fmt::format("contents.{}", i), info.contents[i]);
  for (std::size_t i = 0; i < info.sources.size(); ++i) {
    b.text(fmt::format("source.{}.name", i), info.sources[i].name);
    b.text(fmt::format("source.{}.state", i), info.sources[i].state);
    b.text(fmt::format("source.{}.reason", i), info.sources[i].reason);
  }
  for (std::size_t i = 0; i < info.losses.size(); ++i) {
    const Loss& loss = info.losses[i];
    b.text(fmt::format("loss.{}.reason", i), loss.reason);
    b.number(fmt::format("loss.{}.count", i), static_cast<std::int64_t>(loss.count));
    b.text(fmt::format("loss.{}.source", i), loss.source);
    b.number(fmt::format("loss.{}.begin_ns", i), loss.begin_ns);
    b.number(fmt::format("loss.{}.end_ns", i), loss.end_ns);
  }
  b.number("events", static_cast<std::int64_t>(info.events));
  b.number("begin_ns", info.begin_ns);
  b.number("end_ns", info.end_ns);
  b.number("begin_unix_ns", info.begin_unix_ns);
  b.text("ticks_per_ns", double_text(info.ticks_per_ns));
  b.number("clock_residual_ns", info.clock_residual_ns);
  b.text("event_cost_ns", double_text(info.event_cost_ns));
  b.flag("sealed", sealed);
  return b.entries;
}

void apply_metadata(const MetadataEntry& entry, TraceInfo* info, bool* sealed) {
  std::string_view name = entry.name;
  if (!name.starts_with(kPrefix)) return;
  name.remove_prefix(kPrefix.size());
  const std::string& text = entry.string_value;
  const std::int64_t number = entry.int_value;
  const std::int64_t time_ns = std::max<std::int64_t>(0, number);  // damage must not make differences overflow
  std::size_t index = 0;
  std::string_view part;

  if (name == "version")
    info->marey_version = text;
  else if (name == "kind")
    info->kind = text == "skeleton" ? TraceKind::kSkeleton : TraceKind::kWindow;
  else if (name == "id")
    info->id = text;
  else if (name == "job")
    info->job = text;
  else if (name == "host")
    info->host = text;
  else if (name == "pid")
    info->pid = number;
  else if (name == "rank")
    info->rank = number;
  else if (name == "world_size")
    info->world_size = number;
  else if (name == "parallel")
    info->parallel = text;
  else if (name == "role")
    info->role = text;
  else if (name == "stage")
    info->stage = text;
  else if (name == "train_step")
    info->train_step = number;
  else if (name == "unit")
    info->unit = schedule::parse_unit(text);
  else if (name == "first_unit")
    info->first_unit = number;
  else if (name == "last_unit")
    info->last_unit = number;
  else if (name == "recorded_units")
    info->recorded_units = number;
  else if (name == "planned_units")
    info->planned_units = number;
  else if (name == "complete")
    info->complete = number != 0;
  else if (name == "end_reason")
    info->end_reason = text;
  else if (name == "schedule") {
    if (auto parsed = schedule::parse(text); parsed.is_ok()) info->schedule = parsed.value();
  } else if (list_index(name, "contents", &index, &part))
    at(info->contents, index) = text;
  else if (list_index(name, "source", &index, &part)) {
    SourceState& source = at(info->sources, index);
    if (part == "name")
      source.name = text;
    else if (part == "state")
      source.state = text;
    else if (part == "reason")
      source.reason = text;
  } else if (list_index(name, "loss", &index, &part)) {
    Loss& loss = at(info->losses, index);
    if (part == "reason")
      loss.reason = text;
    else if (part == "count")
      loss.count = static_cast<std::uint64_t>(number);
    else if (part == "source")
      loss.source = text;
    else if (part == "begin_ns")
      loss.begin_ns = time_ns;
    else if (part == "end_ns")
      loss.end_ns = time_ns;
  } else if (name == "events")
    info->events = static_cast<std::uint64_t>(number);
  else if (name == "begin_ns")
    info->begin_ns = time_ns;
  else if (name == "end_ns")
    info->end_ns = time_ns;
  else if (name == "begin_unix_ns")
    info->begin_unix_ns = time_ns;
  else if (name == "ticks_per_ns")
    info->ticks_per_ns = text_double(text);
  else if (name == "clock_residual_ns")
    info->clock_residual_ns = number;
  else if (name == "event_cost_ns")
    info->event_cost_ns = text_double(text);
  else if (name == "sealed")
    *sealed = number != 0;
}

}  // namespace marey::trace
