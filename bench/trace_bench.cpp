// The trace itself, without recording: what a range costs to encode and compress, its bytes on disk, and what it costs
// to read. Load: 80 names, lognormal gaps and lengths, nesting, one range in `args_every` with arguments.

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "src/base/file_output.h"
#include "src/event/string_table.h"
#include "src/trace/reader.h"
#include "src/trace/writer.h"

namespace marey::trace {
namespace {

namespace fs = std::filesystem;

struct Step {
  std::int64_t ts_ns;
  std::uint32_t name;  ///< 0: the innermost range ends
};

/// `ranges` ranges as begins and ends in time order, nested up to six deep.
std::vector<Step> varied_load(std::size_t ranges) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> gap(std::log(900.0), 1.3);
  std::geometric_distribution<std::uint32_t> pick(0.06);
  std::vector<std::uint32_t> names;
  for (int i = 0; i < 80; ++i)
    names.push_back(event::names().intern(fmt::format("model.layers.{}.{}", i / 8, i), i % 3 == 0 ? "phase" : "user"));
  std::vector<Step> steps;
  steps.reserve(2 * ranges);
  std::int64_t now_ns = 1'000'000'000'000;
  std::size_t begun = 0;
  std::size_t depth = 0;
  while (begun < ranges || depth > 0) {
    now_ns += static_cast<std::int64_t>(gap(random));
    const bool begins = begun < ranges && depth < 6 && (depth == 0 || random() % 2 == 0);
    if (begins) {
      steps.push_back({now_ns, names[std::min<std::size_t>(pick(random), names.size() - 1)]});
      ++begun;
      ++depth;
    } else {
      steps.push_back({now_ns, 0});
      --depth;
    }
  }
  return steps;
}

/// Keeps nothing, or what is appended, so that the disk does not count.
class MemoryFile final : public base::FileOutput {
 public:
  explicit MemoryFile(std::string* kept) : kept_(kept) {}
  Status append(std::span<const std::byte> bytes) override {
    size_ += bytes.size();
    if (kept_ != nullptr) kept_->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::ok();
  }
  Status truncate(std::uint64_t size) override {
    size_ = size;
    if (kept_ != nullptr) kept_->resize(size);
    return Status::ok();
  }
  Status sync() override { return Status::ok(); }
  Status close() override { return Status::ok(); }
  [[nodiscard]] std::uint64_t size() const override { return size_; }

 private:
  std::uint64_t size_ = 0;
  std::string* kept_;
};

class MemoryFiles final : public base::FileSystem {
 public:
  explicit MemoryFiles(std::string* kept = nullptr) : kept_(kept) {}
  Status create_folders(const std::string&) override { return Status::ok(); }
  Status check_writable(const std::string&) override { return Status::ok(); }
  Result<std::unique_ptr<base::FileOutput>> create(const std::string&) override {
    return std::unique_ptr<base::FileOutput>(std::make_unique<MemoryFile>(kept_));
  }
  Status rename_exclusive(const std::string&, const std::string&) override { return Status::ok(); }
  Status remove(const std::string&) override { return Status::ok(); }

 private:
  std::string* kept_;
};

TraceInfo bench_info() {
  TraceInfo info;
  info.role = "bench";
  info.host = "host";
  info.pid = 1;
  info.id = "bench1";
  info.begin_ns = 1'000'000'000'000;
  return info;
}

enum class Finish { kSeal, kLeave };

/// Returns the bytes written, or 0 after an error.
std::uint64_t write_all(const std::vector<Step>& steps, const WindowWriter::Options& options, bool with_args,
                        Finish finish, std::string* path) {
  TraceInfo info = bench_info();
  auto created = WindowWriter::create(options, info, {info.begin_ns, 1, 1, 1});
  if (!created.is_ok()) return 0;
  WindowWriter& writer = *created.value();
  const TrackId track = writer.add_thread_track({1, 2, "main"});
  const std::uint32_t key = event::names().intern("index", "arg");
  std::int64_t index = 0;
  std::size_t since_flush = 0;
  for (const Step& step : steps) {
    if (step.name == 0) {
      writer.end(track, step.ts_ns, false);
    } else if (with_args) {
      Arg arg;
      arg.key = key;
      arg.int_value = ++index;
      BeginExtras extras;
      extras.args = {&arg, 1};
      writer.begin(track, step.ts_ns, step.name, extras);
    } else {
      writer.begin(track, step.ts_ns, step.name);
    }
    // About what the drain takes in a few milliseconds.
    if (++since_flush == 8192) {
      since_flush = 0;
      if (!writer.flush().is_ok()) return 0;
    }
  }
  info.end_ns = steps.back().ts_ns;
  if (finish == Finish::kLeave) return writer.flush().is_ok() ? writer.bytes() : 0;
  if (!writer.seal(info, {info.end_ns, 2, 2, 2}).is_ok()) return 0;
  if (path != nullptr) *path = writer.path();
  return writer.bytes();
}

std::size_t g_ranges = 1'000'000;

double thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// Runs `body` (which returns the bytes, 0 for failure) and reports CPU time and bytes per range: the best of the
/// turns, since what disturbs only ever adds.
template <typename Body>
void measure(benchmark::State& state, Body body) {
  double best_ns = 1e30;
  std::uint64_t bytes = 0;
  for ([[maybe_unused]] auto _ : state) {
    const double begin_ns = thread_cpu_ns();
    bytes = body();
    best_ns = std::min(best_ns, thread_cpu_ns() - begin_ns);
    if (bytes == 0) state.SkipWithError("writing or reading failed");
  }
  state.counters["cpu_ns_per_range"] = best_ns / static_cast<double>(g_ranges);
  state.counters["bytes_per_range"] = static_cast<double>(bytes) / static_cast<double>(g_ranges);
}

constexpr std::size_t kBatchBytes = 256 * 1024;
constexpr std::size_t kNeverFull = std::size_t{1} << 32;

/// What the packets cost alone.
void BM_Encode(benchmark::State& state) {
  const std::vector<Step> steps = varied_load(g_ranges);
  MemoryFiles files;
  measure(state, [&] {
    return write_all(steps, {"", &files, &event::names(), kNeverFull}, false, Finish::kLeave, nullptr);
  });
}

/// What the compression level does to the same packets.
void BM_Compress(benchmark::State& state) {
  std::string raw;
  MemoryFiles files(&raw);
  write_all(varied_load(g_ranges), {"", &files, &event::names(), kNeverFull}, false, Finish::kLeave, nullptr);
  libdeflate_compressor* compressor = libdeflate_alloc_compressor(static_cast<int>(state.range(0)));
  std::string out(libdeflate_zlib_compress_bound(compressor, kBatchBytes), '\0');
  measure(state, [&] {
    std::uint64_t bytes = 0;
    for (std::size_t at = 0; at < raw.size(); at += kBatchBytes) {
      bytes += libdeflate_zlib_compress(compressor, raw.data() + at, std::min(kBatchBytes, raw.size() - at), out.data(),
                                        out.size());
    }
    return bytes;
  });
  libdeflate_free_compressor(compressor);
}

void BM_EncodeAndCompress(benchmark::State& state) {
  const std::vector<Step> steps = varied_load(g_ranges);
  MemoryFiles files;
  measure(state, [&] {
    return write_all(steps, {"", &files, &event::names(), kBatchBytes}, state.range(0) != 0, Finish::kSeal, nullptr);
  });
}

void BM_Read(benchmark::State& state) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("marey-trace-bench-{:08x}", std::random_device{}());
  fs::create_directories(folder);
  std::string path;
  write_all(varied_load(g_ranges), {folder, &base::real_file_system(), &event::names(), kBatchBytes}, false,
            Finish::kSeal, &path);
  measure(state, [&]() -> std::uint64_t {
    const auto read = read_trace(path);
    const bool whole =
        read.is_ok() && read.value().events.size() == g_ranges && read.value().state == TraceState::kSealed;
    return whole ? read.value().bytes : 0;
  });
  fs::remove_all(folder);
}

}  // namespace
}  // namespace marey::trace

int main(int argc, char** argv) {
  using namespace marey::trace;
  bool smoke = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--smoke") continue;
    smoke = true;
    std::copy(argv + i + 1, argv + argc, argv + i);
    --argc;
    --i;
  }
  if (smoke) g_ranges = 20'000;
  benchmark::Initialize(&argc, argv);
  const auto add = [smoke](const char* name, void (*function)(benchmark::State&)) {
    return benchmark::RegisterBenchmark(name, function)->Unit(benchmark::kMillisecond)->Iterations(smoke ? 1 : 7);
  };
  add("encode", BM_Encode);
  add("compress/level", BM_Compress)->Arg(1)->Arg(2)->Arg(3)->Arg(4)->Arg(6);
  add("encode_and_compress/args", BM_EncodeAndCompress)->Arg(0)->Arg(1);
  add("read", BM_Read);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
