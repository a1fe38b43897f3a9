#include "src/trace/reader.h"

#include <fmt/format.h>
#include <libdeflate.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "src/trace/slice_builder.h"

namespace marey::trace {
namespace {

constexpr std::uint64_t kMaxBatchBytes = std::uint64_t{64} << 20;  // Marey writes batches of 256 KiB

/// Walks Trace.packet records and hands their bodies to the builder. Never reads past the end; says where it stopped.
class FileParser {
 public:
  FileParser(std::span<const char> bytes, const ReadOptions& options, Trace* trace)
      : bytes_(bytes), options_(options), trace_(trace), builder_(options, trace) {}

  void run() {
    std::size_t at = 0;
    while (at < bytes_.size()) {
      const std::size_t start = at;
      if (static_cast<unsigned char>(bytes_[at]) != 0x0A) {
        damaged(start, "no packet begins here");
        break;
      }
      ++at;
      std::uint64_t length = 0;
      const int outcome = read_varint(&at, &length);
      if (outcome < 0) {
        damaged(start, "a packet's length is not a number");
        break;
      }
      if (outcome == 0 || length > bytes_.size() - at) {
        partial(fmt::format("the file ends inside a packet at byte {}", start));
        break;
      }
      packet(bytes_.subspan(at, length), start);
      at += length;
    }
    builder_.finish();
    if (trace_->state != TraceState::kDamaged && !builder_.sealed()) {
      partial("the trace was not sealed: its writer died or still writes");
    }
  }

  [[nodiscard]] bool any_of_ours() const { return builder_.metadata_seen(); }

 private:
  /// 1: read; 0: the bytes end; -1: not a varint.
  int read_varint(std::size_t* at, std::uint64_t* value) const {
    *value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (*at >= bytes_.size()) return 0;
      const auto byte = static_cast<unsigned char>(bytes_[(*at)++]);
      if (shift == 63 && byte > 1) return -1;
      *value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) return 1;
    }
    return -1;
  }

  void packet(std::span<const char> body, std::size_t offset) {
    std::span<const char> compressed;
    const char* problem = builder_.packet(body, &compressed);
    if (problem == nullptr && !compressed.empty()) problem = inflate(compressed);
    if (problem != nullptr) damaged(offset, problem);
  }

  const char* inflate(std::span<const char> compressed) {
    // deflate makes at most 1032 bytes of one; a batch is bounded besides, so a hostile file costs little.
    const std::uint64_t bound = std::min<std::uint64_t>(kMaxBatchBytes, compressed.size() * 1032 + 64);
    std::vector<char> out;
    std::uint64_t capacity = std::min<std::uint64_t>(bound, std::max<std::uint64_t>(512 * 1024, compressed.size() * 8));
    std::size_t size = 0;
    while (true) {
      if (inflated_bytes_ + capacity > options_.max_uncompressed_bytes) return "more data than the reader was allowed to hold";
      out.resize(capacity);
      const libdeflate_result result =
          libdeflate_zlib_decompress(decompressor_.get(), compressed.data(), compressed.size(), out.data(), out.size(), &size);
      if (result == LIBDEFLATE_SUCCESS) break;
      if (result != LIBDEFLATE_INSUFFICIENT_SPACE || capacity == bound) return "a compressed batch does not inflate";
      capacity = std::min(bound, capacity * 4);
    }
    out.resize(size);
    if (capacity > 2 * size) out.shrink_to_fit();
    inflated_bytes_ += size;
    std::span<const char> rest(out.data(), out.size());
    const char* problem = nullptr;
    while (!rest.empty()) {
      if (static_cast<unsigned char>(rest[0]) != 0x0A) return "a compressed batch holds something else than packets";
      std::size_t at = 1;
      std::uint64_t length = 0;
      unsigned shift = 0;
      while (true) {
        if (at >= rest.size() || shift > 28) return "a compressed batch is cut";
        const auto byte = static_cast<unsigned char>(rest[at++]);
        length |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
        shift += 7;
        if ((byte & 0x80U) == 0) break;
      }
      if (length > rest.size() - at) return "a compressed batch is cut";
      std::span<const char> nested;
      if (const char* wrong = builder_.packet(rest.subspan(at, length), &nested)) problem = wrong;
      if (!nested.empty()) problem = "a compressed batch holds another";
      rest = rest.subspan(at + length);
    }
    trace_->storage.push_back(std::move(out));  // moving keeps the views into it valid
    return problem;
  }

  void damaged(std::size_t offset, const char* what) {
    if (trace_->state != TraceState::kDamaged) trace_->state_reason = fmt::format("{} (byte {})", what, offset);
    trace_->state = TraceState::kDamaged;
  }
  void partial(std::string reason) {
    if (trace_->state != TraceState::kSealed) return;
    trace_->state = TraceState::kPartial;
    trace_->state_reason = std::move(reason);
  }

  struct FreeDecompressor {
    void operator()(libdeflate_decompressor* d) const { libdeflate_free_decompressor(d); }
  };

  std::span<const char> bytes_;
  const ReadOptions& options_;
  Trace* trace_;
  SliceBuilder builder_;
  std::unique_ptr<libdeflate_decompressor, FreeDecompressor> decompressor_{libdeflate_alloc_decompressor()};
  std::uint64_t inflated_bytes_ = 0;
};

Result<Trace> parse(std::vector<char> owned, const std::string& path, const ReadOptions& options) {
  Trace trace;
  trace.path = path;
  trace.bytes = owned.size();
  trace.storage.push_back(std::move(owned));
  const std::span<const char> bytes(trace.storage.front().data(), trace.storage.front().size());
  FileParser parser(bytes, options, &trace);
  parser.run();
  if (!parser.any_of_ours()) {
    return Status::damaged(fmt::format("'{}' is not a trace of Marey's: it holds no metadata of Marey's{}", path,
                                       trace.state_reason.empty() ? "" : fmt::format(" ({})", trace.state_reason)));
  }
  return trace;
}

}  // namespace

std::string_view state_name(TraceState state) {
  switch (state) {
    case TraceState::kSealed: return "sealed";
    case TraceState::kPartial: return "partial";
    case TraceState::kDamaged: return "damaged";
  }
  return "?";
}

Result<Trace> read_trace_bytes(std::span<const char> bytes, const std::string& path, const ReadOptions& options) {
  return parse(std::vector<char>(bytes.begin(), bytes.end()), path, options);
}

Result<Trace> read_trace(const std::string& path, const ReadOptions& options) {
  struct FileCloser {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return Status::not_found(fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
  struct stat info {};
  if (fstat(fileno(file.get()), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Status::invalid_argument(fmt::format("'{}' is not a file", path));
  }
  std::vector<char> bytes(static_cast<std::size_t>(info.st_size));
  // A file that is still being written may have grown or been cut back since: what was read is what counts.
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file.get()));
  if (std::ferror(file.get()) != 0) return Status::io(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  return parse(std::move(bytes), path, options);
}

Result<std::vector<std::string>> find_traces(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) {
    return Status::not_found(fmt::format("'{}' does not exist; give a .pftrace file or a folder of them", path));
  }
  std::vector<std::string> found;
  if (!fs::is_directory(path, error)) {
    found.push_back(path);
    return found;
  }
  for (auto entry = fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().string();
    if ((name.ends_with(".pftrace") || name.ends_with(".pftrace.partial")) && entry->is_regular_file(error)) found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace marey::trace
