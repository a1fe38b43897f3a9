#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "src/event/string_table.h"

namespace marey::event {
namespace {

TEST(StringTable, GivesOneIdPerNameAndCategory) {
  StringTable table;
  const auto a = table.intern("forward", "user");
  EXPECT_EQ(a, table.intern("forward", "user"));
  EXPECT_NE(a, table.intern("forward", "operator"));
  EXPECT_EQ(table.entry(a).name, "forward");
  EXPECT_EQ(table.entry(a).category, "user");
}

TEST(StringTable, AnswersForIdsItNeverGave) {
  const StringTable table;
  EXPECT_EQ(table.entry(0).name, "?");
  EXPECT_EQ(table.entry(4'000'000'000U).name, "?");
}

TEST(StringTable, KeepsNamesValidUtf8) {
  StringTable table;
  EXPECT_EQ(table.entry(table.intern(std::string_view("a\0b", 3), "user")).name,
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(table.entry(table.intern("\xED\xA0\x80", "user")).name,
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // lone surrogate
  EXPECT_EQ(table.entry(table.intern("\xC3\xA9\xF0\x9F\x8E\x9E", "user")).name, "\xC3\xA9\xF0\x9F\x8E\x9E");
  EXPECT_EQ(table.entry(table.intern("\xC0\xAF", "user")).name, "\xEF\xBF\xBD\xEF\xBF\xBD");  // overlong
  EXPECT_EQ(table.entry(table.intern("", "user")).name, "(unnamed)");
  EXPECT_EQ(table.entry(table.intern(std::string(10'000, 'x'), "user")).name.size(), 4096U);
}

TEST(StringTable, InternsFromManyThreads) {
  StringTable table;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&table] {
      for (int i = 0; i < 10'000; ++i) {
        const auto id = table.intern("name" + std::to_string(i), "user");
        ASSERT_EQ(table.entry(id).name, "name" + std::to_string(i));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(table.size(), 10'001U);
}

}  // namespace
}  // namespace marey::event
