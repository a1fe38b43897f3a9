#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "marey/marey.hpp"
#include "src/trace/reader.h"

namespace marey::test {

/// A test of the public API on libmarey itself: real clock, real drain, real files, read back by the reader.
class CppApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::random_device random;
    folder_ = (std::filesystem::temp_directory_path() / ("marey-cpp-api-" + std::to_string(random()))).string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] Options options(Schedule schedule = {}, std::string role = {}) const {
    return {.schedule = schedule, .role = std::move(role), .out = folder_, .skeleton = false, .quiet = true};
  }
  [[nodiscard]] Profiler make(const Options& options) const {
    auto created = Profiler::create(options);
    EXPECT_TRUE(created) << created.error().message;
    return std::move(created).value_or({});
  }
  [[nodiscard]] Profiler make(Schedule schedule = {}) const { return make(options(schedule)); }

  /// The windows of a profiler, all sealed.
  static std::vector<Window> sealed(Profiler& profiler) {
    const Error error = profiler.wait(30);
    EXPECT_FALSE(error) << error.message;
    std::vector<Window> windows;
    for (Window& window : profiler.windows()) {
      EXPECT_EQ(window.error, "");
      if (!window.is_skeleton) windows.push_back(std::move(window));
    }
    return windows;
  }

  static trace::Trace read(const Window& window) {
    auto trace = trace::read_trace(window.path);
    EXPECT_TRUE(trace.is_ok()) << trace.status().message();
    if (!trace.is_ok()) return {};
    EXPECT_EQ(trace.value().state, trace::TraceState::kSealed);
    return std::move(trace).value();
  }

  /// Names of the detail events in order of begin; "!" after one that was open at the window's end.
  static std::vector<std::string> names(const trace::Trace& trace) {
    std::vector<std::string> names;
    for (const trace::Event& event : trace.events) {
      if (event.tier == trace::Tier::kDetail) names.push_back(std::string(event.name) + (event.truncated ? "!" : ""));
    }
    return names;
  }

  /// The one trace of a profiler that is stopped.
  static trace::Trace only_trace(Profiler& profiler) {
    const std::vector<Window> windows = sealed(profiler);
    EXPECT_EQ(windows.size(), 1U);
    return windows.empty() ? trace::Trace{} : read(windows.front());
  }

  std::string folder_;
};

}  // namespace marey::test
