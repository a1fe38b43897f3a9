// Any text as a schedule: a clear error, or a schedule whose functions agree with one another.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "src/schedule/schedule.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace marey::schedule;
  const auto parsed = parse({reinterpret_cast<const char*>(data), size});
  if (!parsed.is_ok()) {
    if (parsed.status().message().empty()) std::abort();
    return 0;
  }
  const Schedule& schedule = parsed.value();
  if (!(parse(to_string(schedule)).value() == schedule)) std::abort();
  for (const std::int64_t number :
       {std::int64_t{0}, std::int64_t{7}, schedule.skip_first, std::int64_t{1} << 50, INT64_MAX}) {
    const auto change = next_change(schedule, number);
    if (change && (*change <= number || action_of(schedule, *change) == action_of(schedule, number))) std::abort();
  }
  (void)plan(schedule, 100);
  return 0;
}
