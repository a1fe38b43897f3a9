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
constexpr std::uint64_t kMaxPacketBytes = std::uint64_t{16} << 20;  // and no packet above 512 KiB

/// Walks Trace.packet records and hands their bodies to the builder. Never reads past the end; says where it stopped.
class FileParser {
 public:
  FileParser(std::span<const char> bytes, const ReadOptions& options, Trace* trace)
      : bytes_(bytes), options_(options), trace_(trace), builder_(options, trace) {}

  void run() {
    std::size_t at = 0;
    while (at < bytes_.size()) {
      std::size_t body = 0;
      std::uint64_t length = 0;
      const char* problem = head(at, &body, &length);
      if (problem == nullptr && length <= bytes_.size() - body) {
        packet(bytes_.subspan(body, length), at);
        at = body + length;
        continue;
      }
      const std::size_t next = resume_after(at);
      if (next < bytes_.size()) {
        damaged(at, problem != nullptr ? problem : "a packet's length is wrong");
      } else if (problem != nullptr) {
        damaged(at, problem);
      } else {
        partial(fmt::format("the file ends inside a packet at byte {}", at));
      }
      at = next;
    }
    builder_.finish();
    if (trace_->state == TraceState::kDamaged) return;
    if (!builder_.sealed()) {
      partial("the trace was not sealed: its writer died or still writes");
    } else if (builder_.counted() != trace_->info.events) {
      damaged(bytes_.size(), fmt::format("the trace says that it holds {} events, {} are there", trace_->info.events, builder_.counted()));
    }
  }

  [[nodiscard]] bool any_of_ours() const { return builder_.metadata_seen(); }

 private:
  /// The head of the packet at `at`: where its body begins and how long it is. A head that the end of the bytes cuts has an
  /// endless body. Returns what is wrong, or null.
  const char* head(std::size_t at, std::size_t* body, std::uint64_t* length) const {
    *body = at + 1;
    *length = 0;
    if (static_cast<unsigned char>(bytes_[at]) != 0x0A) return "no packet begins here";
    for (unsigned shift = 0; shift < 35; shift += 7) {
      if (*body >= bytes_.size()) {
        *length = UINT64_MAX;
        return nullptr;
      }
      const auto byte = static_cast<unsigned char>(bytes_[(*body)++]);
      *length |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) return *length <= kMaxPacketBytes ? nullptr : "a packet is too long";
    }
    return "a packet's length is not a number";
  }

  /// Whether the bytes from `at` on look like packets of Marey's: several in a row, or up to the end.
  bool packets_at(std::size_t at) const {
    for (int count = 0; count < 3; ++count) {
      if (at == bytes_.size()) return count >= 2;
      std::size_t body = 0;
      std::uint64_t length = 0;
      if (head(at, &body, &length) != nullptr || length == 0 || length > bytes_.size() - body) return false;
      const auto first = static_cast<unsigned char>(bytes_[body]);
      // A packet begins with its time, its sequence, or (the first byte of that tag) with compressed packets.
      if (first != 0x40 && first != 0x50 && first != 0x92) return false;
      at = body + length;
    }
    return true;
  }

  /// Where packets go on after the damage at `at`; the end when nowhere.
  std::size_t resume_after(std::size_t at) const {
    while (++at < bytes_.size()) {
      if (static_cast<unsigned char>(bytes_[at]) == 0x0A && packets_at(at)) return at;
    }
    return bytes_.size();
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
    // Packets of Marey's shrink to a third or less; room that is there already is used.
    std::uint64_t capacity = std::min<std::uint64_t>(bound, std::max<std::uint64_t>({16 * 1024, compressed.size() * 5, scratch_.size()}));
    std::size_t size = 0;
    while (true) {
      if (inflated_bytes_ + capacity > options_.max_uncompressed_bytes) return "more data than the reader was allowed to hold";
      if (scratch_.size() < capacity) scratch_.resize(capacity);
      const libdeflate_result result = libdeflate_zlib_decompress(decompressor_.get(), compressed.data(), compressed.size(),
                                                                  scratch_.data(), capacity, &size);
      if (result == LIBDEFLATE_SUCCESS) break;
      if (result != LIBDEFLATE_INSUFFICIENT_SPACE || capacity == bound) {
        return "a compressed batch does not inflate: its events are lost, and later times on their tracks are too early";
      }
      capacity = std::min(bound, capacity * 4);
    }
    inflated_bytes_ += size;
    const char* problem = batch({scratch_.data(), size});
    // Events refer to the names and texts in the batch; most batches bring no new ones.
    if (builder_.take_refers()) {
      trace_->storage.push_back(std::move(scratch_));
      scratch_ = {};
    }
    return problem;
  }

  const char* batch(std::span<const char> rest) {
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
    return problem;
  }

  void damaged(std::size_t offset, std::string_view what) {
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
  std::vector<char> scratch_;
};

Result<Trace> parse(std::vector<char> owned, const std::string& path, const ReadOptions& options) {
  Trace trace;
  trace.path = path;
  trace.bytes = owned.size();
  trace.storage.push_back(std::move(owned));
  const std::span<const char> bytes(trace.storage.front().data(), trace.storage.front().size());
  // A range takes about nine bytes on disk; pages that stay untouched cost nothing.
  if (!options.info_only) trace.events.reserve(std::min<std::size_t>(bytes.size() / 9, std::size_t{1} << 26));
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
