#pragma once

#include <array>
#include <string_view>

namespace marey::event {

/// Categories whose events come from a known source. The file stores the category alone, so these words belong to their
/// source: a user's range that asks for one of them is stored as "user.<category>".
struct Category {
  std::string_view name;
  std::string_view source;
};

inline constexpr std::string_view kUserCategory = "user";
inline constexpr std::string_view kUnitCategory = "unit";
inline constexpr std::string_view kStageCategory = "stage";
inline constexpr std::string_view kOperatorCategory = "operator";
inline constexpr std::string_view kBackwardCategory = "backward";
inline constexpr std::string_view kUserScopeCategory = "user_scope";

inline constexpr std::array<Category, 5> kReservedCategories{{
    {kUnitCategory, "session"},
    {kStageCategory, "session"},
    {kOperatorCategory, "torch"},
    {kBackwardCategory, "torch"},
    {kUserScopeCategory, "torch"},
}};

/// The source of a category as stored: one of the above, else "host".
constexpr std::string_view source_of(std::string_view category) {
  for (const Category& reserved : kReservedCategories) {
    if (reserved.name == category) return reserved.source;
  }
  return "host";
}

}  // namespace marey::event
