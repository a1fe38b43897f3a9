// Replays every stored fuzz input, past crashes included, without a fuzzer. An empty corpus is a failure.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "src/schedule/schedule.h"
#include "src/trace/reader.h"

namespace marey {
namespace {

template <typename Run>
int replay(const char* target, Run run) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(MAREY_FUZZ_CORPUS) / target)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    run(bytes);
    ++count;
  }
  return count;
}

TEST(FuzzCorpus, TraceReader) {
  int readable = 0;
  const int count = replay("trace_reader_fuzz", [&readable](const std::string& bytes) {
    const auto read = trace::read_trace_bytes({bytes.data(), bytes.size()}, "corpus");
    readable += read.is_ok() ? 1 : 0;
  });
  EXPECT_GE(count, 3);
  EXPECT_GE(readable, 3);
}

TEST(FuzzCorpus, Schedule) {
  const int count = replay("schedule_fuzz", [](const std::string& bytes) {
    const auto parsed = schedule::parse(bytes);
    if (!parsed.is_ok()) return;
    for (const std::int64_t number : {std::int64_t{0}, std::int64_t{1} << 50, INT64_MAX}) {
      const auto change = schedule::next_change(parsed.value(), number);
      EXPECT_TRUE(!change || *change > number);
    }
  });
  EXPECT_GE(count, 4);
}

}  // namespace
}  // namespace marey
