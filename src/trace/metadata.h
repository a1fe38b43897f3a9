#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/trace/trace_info.h"

namespace marey::trace {

/// One entry of a trace's metadata as stored: ChromeMetadata {name, string | bool | int}. This carrier leaves no slice,
/// so that every reader counts the same events as Marey does.
struct MetadataEntry {
  enum class Type { kString, kBool, kInt };
  std::string name;
  Type type = Type::kString;
  std::string string_value;
  std::int64_t int_value = 0;
};

/// All fields of `info` under names "marey.<field>", lists as "marey.<field>.<index>[.<part>]".
std::vector<MetadataEntry> to_metadata(const TraceInfo& info, bool sealed);
/// Puts one entry back; unknown names are ignored (a newer Marey wrote them). "marey.sealed" sets `sealed`.
void apply_metadata(const MetadataEntry& entry, TraceInfo* info, bool* sealed);

}  // namespace marey::trace
