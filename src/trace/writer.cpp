#include "src/trace/writer.h"

#include <fmt/format.h>
#include <libdeflate.h>

#include <array>
#include <protozero/pbf_writer.hpp>
#include <random>
#include <unordered_map>
#include <vector>

#include "src/event/categories.h"
#include "src/trace/encoder.h"
#include "src/trace/fields.h"
#include "src/trace/metadata.h"

namespace marey::trace {
namespace {

using protozero::pbf_writer;

/// By bench/trace_bench: level 2 takes half as much time again (the drain shares the machine with training) for 3 %
/// fewer bytes.
constexpr int kCompressionLevel = 1;
constexpr std::uint32_t kMetadataSequence = 1;
/// Names of these carry the unit and stay short; strings in arguments are cut by the recorder.
constexpr std::size_t kMaxHotBytes = 96;

std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  std::uint64_t value = 0xcbf29ce484222325ULL ^ seed;  // FNV-1a, then splitmix64's finaliser
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  value ^= value >> 30U;
  value *= 0xbf58476d1ce4e5b9ULL;
  value ^= value >> 27U;
  value *= 0x94d049bb133111ebULL;
  value ^= value >> 31U;
  return value == 0 ? 1 : value;
}

/// The schema's strings are UTF-8; thread names and arguments are any bytes.
std::string clean(std::string_view text) {
  return event::clean_utf8(text, 4096);
}

std::string label_of(const TraceInfo& info) {
  std::string text;
  if (info.train_step) text = fmt::format("train_step {}", *info.train_step);
  if (info.kind == TraceKind::kSkeleton) return text.empty() ? "skeleton" : "skeleton from " + text;
  if (info.unit && info.first_unit) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", schedule::unit_name(*info.unit), *info.first_unit);
    if (info.last_unit && *info.last_unit != *info.first_unit) text += fmt::format("-{}", *info.last_unit);
  }
  return text;
}

class PerfettoWriter final : public WindowWriter {
 public:
  PerfettoWriter(const Options& options, const TraceInfo& info, std::unique_ptr<base::FileOutput> file,
                 std::string path)
      : files_(*options.files),
        folder_(options.folder),
        names_(*options.names),
        batch_bytes_(options.batch_bytes),
        file_(std::move(file)),
        path_(std::move(path)),
        uuid_seed_(hash(info.host + '\0' + info.id, static_cast<std::uint64_t>(info.pid) << 20U)),
        raw_(batch_bytes_ + 4096),
        compressor_(libdeflate_alloc_compressor(kCompressionLevel)) {
    if (compressor_ == nullptr)
      error_ = Status::exhausted("cannot write '" + path_ + "': no memory for its compressor");
  }
  ~PerfettoWriter() override { libdeflate_free_compressor(compressor_); }
  PerfettoWriter(const PerfettoWriter&) = delete;
  PerfettoWriter& operator=(const PerfettoWriter&) = delete;

  Status write_header(const TraceInfo& info, const ClockSample& clock) {
    base_ns_ = info.begin_ns < clock.monotonic_ns ? info.begin_ns : clock.monotonic_ns;
    write_clock(clock);
    std::string body;
    {
      pbf_writer packet(body);
      packet.add_uint32(field::packet::kSequenceId, kMetadataSequence);
      pbf_writer track(packet, field::packet::kTrackDescriptor);
      process_uuid_ = hash("process", uuid_seed_);
      track.add_uint64(field::track_descriptor::kUuid, process_uuid_);
      track.add_uint32(field::track_descriptor::kChildOrdering, 3);  // EXPLICIT: by sibling_order_rank
      pbf_writer process(track, field::track_descriptor::kProcess);
      process.add_int32(field::process::kPid, static_cast<std::int32_t>(info.pid));
      process.add_string(field::process::kName,
                         clean(fmt::format("{}rank {}", info.role.empty() ? "" : info.role + " ", info.rank)));
      if (const std::string label = label_of(info); !label.empty()) process.add_string(field::process::kLabels, label);
    }
    add_packet(body);
    write_metadata(info, false);
    const Status status = flush();
    // The head stays outside the batches: a file that is cut anywhere after it still says whose it is.
    raw_.clear();
    flushed_ = 0;
    return status;
  }

  TrackId add_thread_track(const ThreadInfo& thread) override {
    const std::string name = thread.name.empty() ? fmt::format("thread {}", thread.tid) : clean(thread.name);
    return add_track_packet([&](pbf_writer& track) {
      pbf_writer descriptor(track, field::track_descriptor::kThread);
      descriptor.add_int32(field::thread::kPid, static_cast<std::int32_t>(thread.pid));
      descriptor.add_int64(field::thread::kTid, thread.tid);
      descriptor.add_string(field::thread::kName, name);
    });
  }

  TrackId add_track(std::string_view name, int order) override {
    return add_track_packet([&](pbf_writer& track) {
      track.add_string(field::track_descriptor::kName, clean(name));
      track.add_uint64(field::track_descriptor::kParentUuid, process_uuid_);
      track.add_int32(field::track_descriptor::kSiblingOrderRank, order);
    });
  }

  void begin(TrackId track, std::int64_t ts_ns, std::uint32_t name) override {
    Track& t = tracks_[track];
    ++events_;
    if (name < t.names.size() && t.names[name].name != 0 && ts_ns >= t.last_ns) [[likely]] {
      hot(t, ts_ns, field::kSliceBegin, t.names[name]);
      return;
    }
    event(t, ts_ns, field::kSliceBegin, name, {}, false);
  }

  void begin(TrackId track, std::int64_t ts_ns, std::uint32_t name, const BeginExtras& extras) override {
    ++events_;
    event(tracks_[track], ts_ns, field::kSliceBegin, name, extras, false);
  }

  void end(TrackId track, std::int64_t ts_ns, bool open_at_end) override {
    Track& t = tracks_[track];
    if (!open_at_end && ts_ns >= t.last_ns) [[likely]] {
      hot(t, ts_ns, field::kSliceEnd, {});
      return;
    }
    event(t, ts_ns, field::kSliceEnd, 0, {}, open_at_end);
  }

  void mark(TrackId track, std::int64_t ts_ns, std::uint32_t name, std::span<const Arg> args) override {
    ++events_;
    BeginExtras extras;
    extras.args = args;
    event(tracks_[track], ts_ns, field::kInstant, name, extras, false);
  }

  Status flush() override {
    if (!error_.is_ok()) return error_;
    if (flushed_ == raw_.size()) return Status::ok();
    write(raw_.view().substr(flushed_));
    flushed_ = raw_.size();
    return error_;
  }

  Status seal(const TraceInfo& info, const ClockSample& clock) override {
    if (!error_.is_ok()) return error_;
    compress_batch();
    write_clock(clock);
    TraceInfo last = info;
    last.events = events_;
    write_metadata(last, true);
    MAREY_RETURN_IF_ERROR(flush());
    keep(file_->sync());
    if (error_.is_ok()) keep(file_->close());
    if (!error_.is_ok()) return error_;
    TraceInfo named = info;
    Status first_refusal;
    for (int attempt = 0; attempt < 3; ++attempt) {
      std::string target = folder_ + "/" + file_name(named);
      const Status renamed = files_.rename_exclusive(path_, target);
      if (renamed.is_ok()) {
        path_ = std::move(target);
        return Status::ok();
      }
      if (attempt == 0) first_refusal = renamed;
      // Perhaps the name is taken: another id makes another name, and no file is ever replaced.
      std::random_device random;
      named.id = fmt::format("{:06x}", random() & 0xffffffU);
    }
    keep(first_refusal);
    return error_;
  }

  Status discard() override {
    const Status closed = file_->close();
    const Status removed = files_.remove(path_);
    return removed.is_ok() ? closed : removed;
  }

  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] std::uint64_t events() const override { return events_; }
  [[nodiscard]] std::uint64_t bytes() const override { return file_->size(); }
  [[nodiscard]] const Status& error() const override { return error_; }

 private:
  struct NameIids {
    std::uint32_t name = 0;  ///< 0: not interned on this track yet
    std::uint32_t category = 0;
  };
  struct Track {
    std::uint32_t sequence = 0;
    std::int64_t last_ns = 0;  ///< value of the track's incremental clock
    std::uint32_t name_count = 0;
    std::vector<NameIids> names;  ///< by name id
    std::unordered_map<std::string, std::uint32_t> categories;
    std::unordered_map<std::uint32_t, std::uint32_t> keys;
  };

  void keep(const Status& status) {
    if (error_.is_ok() && !status.is_ok()) error_ = status;
  }
  void write(std::string_view bytes) { keep(file_->append(std::as_bytes(std::span(bytes.data(), bytes.size())))); }

  /// Wraps a packet's body into a Trace.packet record.
  void add_packet(std::string_view body) {
    std::array<char, 1 + Encoder::kMaxVarint> head;
    head[0] = static_cast<char>(tag(field::trace::kPacket, 2));
    const char* end = Encoder::varint(head.data() + 1, body.size());
    raw_.append({head.data(), static_cast<std::size_t>(end - head.data())});
    raw_.append(body);
    if (raw_.size() >= batch_bytes_) compress_batch();
  }

  void write_clock(const ClockSample& clock) {
    std::string body;
    {
      pbf_writer packet(body);
      packet.add_uint32(field::packet::kSequenceId, kMetadataSequence);
      pbf_writer snapshot(packet, field::packet::kClockSnapshot);
      const auto add = [&snapshot](std::uint32_t id, std::int64_t ns) {
        pbf_writer entry(snapshot, field::clock_snapshot::kClocks);
        entry.add_uint32(field::clock::kId, id);
        entry.add_uint64(field::clock::kTimestamp, static_cast<std::uint64_t>(ns));
      };
      add(field::kClockMonotonic, clock.monotonic_ns);
      add(field::kClockRealtime, clock.realtime_ns);
      if (clock.monotonic_raw_ns != 0) add(field::kClockMonotonicRaw, clock.monotonic_raw_ns);
      if (clock.boottime_ns != 0) add(field::kClockBoottime, clock.boottime_ns);
      snapshot.add_uint32(field::clock_snapshot::kPrimaryTraceClock, field::kClockMonotonic);
    }
    add_packet(body);
  }

  void write_metadata(const TraceInfo& info, bool sealed) {
    std::string body;
    {
      pbf_writer packet(body);
      packet.add_uint32(field::packet::kSequenceId, kMetadataSequence);
      packet.add_uint64(field::packet::kTimestamp, static_cast<std::uint64_t>(sealed ? info.end_ns : info.begin_ns));
      packet.add_uint32(field::packet::kTimestampClockId, field::kClockMonotonic);
      pbf_writer events(packet, field::packet::kChromeEvents);
      for (const MetadataEntry& entry : to_metadata(info, sealed)) {
        pbf_writer item(events, field::chrome_events::kMetadata);
        item.add_string(field::chrome_metadata::kName, entry.name);
        switch (entry.type) {
          case MetadataEntry::Type::kString:
            item.add_string(field::chrome_metadata::kString, entry.string_value);
            break;
          case MetadataEntry::Type::kBool:
            item.add_bool(field::chrome_metadata::kBool, entry.int_value != 0);
            break;
          case MetadataEntry::Type::kInt:
            item.add_int64(field::chrome_metadata::kInt, entry.int_value);
            break;
        }
      }
    }
    add_packet(body);
  }

  template <typename Describe>
  TrackId add_track_packet(Describe describe) {
    Track track;
    track.sequence = static_cast<std::uint32_t>(tracks_.size()) + kMetadataSequence + 1;
    track.last_ns = base_ns_;
    const std::uint64_t uuid = hash(fmt::format("track {}", track.sequence), uuid_seed_);
    std::string body;
    {
      pbf_writer packet(body);
      packet.add_uint32(field::packet::kSequenceId, track.sequence);
      packet.add_uint32(field::packet::kSequenceFlags, field::kFlagStateCleared);
      pbf_writer descriptor(packet, field::packet::kTrackDescriptor);
      descriptor.add_uint64(field::track_descriptor::kUuid, uuid);
      describe(descriptor);
    }
    add_packet(body);
    body.clear();
    {
      // The track's clock counts from the window's begin, the same moment for every track: snapshots that tie a clock
      // to MONOTONIC may not go back in time.
      pbf_writer packet(body);
      packet.add_uint32(field::packet::kSequenceId, track.sequence);
      packet.add_uint32(field::packet::kSequenceFlags, field::kFlagNeedsState);
      {
        pbf_writer snapshot(packet, field::packet::kClockSnapshot);
        const auto add = [&](std::uint32_t id, bool incremental) {
          pbf_writer entry(snapshot, field::clock_snapshot::kClocks);
          entry.add_uint32(field::clock::kId, id);
          entry.add_uint64(field::clock::kTimestamp, static_cast<std::uint64_t>(base_ns_));
          if (incremental) entry.add_bool(field::clock::kIsIncremental, true);
        };
        add(field::kClockMonotonic, false);
        add(field::kClockLane, true);
      }
      pbf_writer defaults(packet, field::packet::kDefaults);
      defaults.add_uint32(field::defaults::kTimestampClockId, field::kClockLane);
      pbf_writer events(defaults, field::defaults::kTrackEventDefaults);
      events.add_uint64(field::track_event::kTrackUuid, uuid);
    }
    add_packet(body);
    tracks_.push_back(std::move(track));
    return static_cast<TrackId>(tracks_.size() - 1);
  }

  /// The two packets that make up nearly all of a trace, written in place:
  ///   0A len | 40 delta | 50 sequence | 68 02 (begin only) | 5A len | 48 type | 18 category | 50 name
  void hot(Track& track, std::int64_t ts_ns, std::uint32_t type, const NameIids& iids) {
    char* const record = raw_.room(kMaxHotBytes);
    char* at = record + 2;  // the body is shorter than 128 bytes: its length is one byte
    *at++ = static_cast<char>(tag(field::packet::kTimestamp, 0));
    at = Encoder::varint(at, static_cast<std::uint64_t>(ts_ns - track.last_ns));
    *at++ = static_cast<char>(tag(field::packet::kSequenceId, 0));
    at = Encoder::varint(at, track.sequence);
    if (type == field::kSliceBegin) {
      *at++ = static_cast<char>(tag(field::packet::kSequenceFlags, 0));
      *at++ = static_cast<char>(field::kFlagNeedsState);
    }
    *at++ = static_cast<char>(tag(field::packet::kTrackEvent, 2));
    char* const event_size = at++;
    *at++ = static_cast<char>(tag(field::track_event::kType, 0));
    *at++ = static_cast<char>(type);
    if (type == field::kSliceBegin) {
      *at++ = static_cast<char>(tag(field::track_event::kCategoryIids, 0));
      at = Encoder::varint(at, iids.category);
      *at++ = static_cast<char>(tag(field::track_event::kNameIid, 0));
      at = Encoder::varint(at, iids.name);
    }
    *event_size = static_cast<char>(at - event_size - 1);
    record[0] = static_cast<char>(tag(field::trace::kPacket, 2));
    record[1] = static_cast<char>(at - record - 2);
    raw_.commit(at);
    track.last_ns = ts_ns;
    if (raw_.size() >= batch_bytes_) compress_batch();
  }

  /// Every other event: first use of a name, arguments, flows, time that lies before the track's clock.
  void event(Track& track, std::int64_t ts_ns, std::uint32_t type, std::uint32_t name, const BeginExtras& extras,
             bool open_at_end) {
    std::string interned;
    NameIids iids;
    if (type != field::kSliceEnd) iids = intern_name(track, name, &interned);
    std::vector<std::uint32_t> keys;
    for (const Arg& arg : extras.args) keys.push_back(intern_key(track, arg.key, &interned));
    const std::uint32_t open_key = open_at_end ? intern_key(track, open_at_end_key(), &interned) : 0;

    std::string body;
    {
      pbf_writer packet(body);
      if (ts_ns >= track.last_ns) {
        packet.add_uint64(field::packet::kTimestamp, static_cast<std::uint64_t>(ts_ns - track.last_ns));
        track.last_ns = ts_ns;
      } else {
        // An incremental clock cannot go back; an absolute one leaves it as it is.
        packet.add_uint64(field::packet::kTimestamp, static_cast<std::uint64_t>(ts_ns));
        packet.add_uint32(field::packet::kTimestampClockId, field::kClockMonotonic);
      }
      packet.add_uint32(field::packet::kSequenceId, track.sequence);
      packet.add_uint32(field::packet::kSequenceFlags, field::kFlagNeedsState);
      if (!interned.empty()) packet.add_message(field::packet::kInternedData, interned);
      pbf_writer event(packet, field::packet::kTrackEvent);
      event.add_uint32(field::track_event::kType, type);
      if (iids.name != 0) {
        event.add_uint64(field::track_event::kCategoryIids, iids.category);
        event.add_uint64(field::track_event::kNameIid, iids.name);
      }
      for (std::size_t i = 0; i < extras.args.size(); ++i) write_arg(event, keys[i], extras.args[i]);
      if (open_at_end) {
        pbf_writer annotation(event, field::track_event::kDebugAnnotations);
        annotation.add_uint64(field::annotation::kNameIid, open_key);
        annotation.add_bool(field::annotation::kBool, true);
      }
      if (extras.flow_id != 0) event.add_fixed64(field::track_event::kFlowIds, extras.flow_id);
      if (extras.terminating_flow_id != 0)
        event.add_fixed64(field::track_event::kTerminatingFlowIds, extras.terminating_flow_id);
    }
    add_packet(body);
  }

  static void write_arg(pbf_writer& event, std::uint32_t key, const Arg& arg) {
    pbf_writer annotation(event, field::track_event::kDebugAnnotations);
    annotation.add_uint64(field::annotation::kNameIid, key);
    switch (arg.type) {
      case Arg::Type::kInt:
        annotation.add_int64(field::annotation::kInt, arg.int_value);
        break;
      case Arg::Type::kBool:
        annotation.add_bool(field::annotation::kBool, arg.int_value != 0);
        break;
      case Arg::Type::kDouble:
        annotation.add_double(field::annotation::kDouble, arg.double_value);
        break;
      case Arg::Type::kString:
        annotation.add_string(field::annotation::kString, clean(arg.string_value));
        break;
    }
  }

  static void write_entry(std::string* interned, std::uint32_t kind, std::uint32_t iid, std::string_view text) {
    pbf_writer data(*interned);
    pbf_writer entry(data, kind);
    entry.add_uint64(field::interned::kEntryIid, iid);
    entry.add_string(field::interned::kEntryName, text.data(), text.size());
  }

  NameIids intern_name(Track& track, std::uint32_t name, std::string* interned) {
    if (name >= track.names.size()) track.names.resize(name + 1 + track.names.size() / 2);
    NameIids& iids = track.names[name];
    if (iids.name != 0) return iids;
    const event::NameEntry& entry = names_.entry(name);
    iids.name = ++track.name_count;
    write_entry(interned, field::interned::kEventNames, iids.name, entry.name);
    const std::string& category = entry.category.empty() ? default_category_ : entry.category;
    const auto [found, fresh] =
        track.categories.try_emplace(category, static_cast<std::uint32_t>(track.categories.size() + 1));
    iids.category = found->second;
    if (fresh) write_entry(interned, field::interned::kCategories, iids.category, category);
    return iids;
  }

  std::uint32_t intern_key(Track& track, std::uint32_t key, std::string* interned) {
    const auto [found, fresh] = track.keys.try_emplace(key, static_cast<std::uint32_t>(track.keys.size() + 1));
    if (fresh) write_entry(interned, field::interned::kAnnotationNames, found->second, names_.entry(key).name);
    return found->second;
  }

  /// Not an id of the string table: kOpenAtEnd is written by the writer itself.
  std::uint32_t open_at_end_key() {
    if (open_key_ == 0) open_key_ = names_.intern("open_at_end", "arg");
    return open_key_;
  }

  /// Replaces the uncompressed tail of the file by one compressed packet. Killed in between, the file lacks that batch.
  void compress_batch() {
    if (raw_.empty() || !error_.is_ok()) {
      raw_.clear();
      flushed_ = 0;
      return;
    }
    packed_.resize(libdeflate_zlib_compress_bound(compressor_, raw_.size()));
    const std::size_t size =
        libdeflate_zlib_compress(compressor_, raw_.data(), raw_.size(), packed_.data(), packed_.size());
    std::array<char, 2 + 3 * Encoder::kMaxVarint> head;
    char* at = head.data();
    const std::uint32_t inner_tag = tag(field::packet::kCompressedPackets, 2);
    const std::size_t body = Encoder::varint_size(inner_tag) + Encoder::varint_size(size) + size;
    *at++ = static_cast<char>(tag(field::trace::kPacket, 2));
    at = Encoder::varint(at, body);
    at = Encoder::varint(at, inner_tag);
    at = Encoder::varint(at, size);
    std::string out(head.data(), static_cast<std::size_t>(at - head.data()));
    out.append(packed_.data(), size);
    if (flushed_ > 0) keep(file_->truncate(file_->size() - flushed_));
    if (error_.is_ok()) write(out);
    raw_.clear();
    flushed_ = 0;
  }

  base::FileSystem& files_;
  const std::string default_category_{event::kUserCategory};
  const std::string folder_;
  event::StringTable& names_;
  const std::size_t batch_bytes_;
  std::unique_ptr<base::FileOutput> file_;
  std::string path_;
  const std::uint64_t uuid_seed_;
  std::uint64_t process_uuid_ = 0;
  std::int64_t base_ns_ = 0;
  std::vector<Track> tracks_;
  ByteBuffer raw_;           ///< whole packets that are not in a compressed packet yet
  std::size_t flushed_ = 0;  ///< bytes of raw_ that lie uncompressed at the end of the file
  std::string packed_;
  libdeflate_compressor* compressor_;
  std::uint32_t open_key_ = 0;
  std::uint64_t events_ = 0;
  Status error_;
};

}  // namespace

Result<std::unique_ptr<WindowWriter>> WindowWriter::create(const Options& options, const TraceInfo& info,
                                                           const ClockSample& clock) {
  const std::string path = options.folder + "/" + file_name(info) + ".partial";
  auto file = options.files->create(path);
  if (!file.is_ok()) return file.status();
  auto writer = std::make_unique<PerfettoWriter>(options, info, std::move(file).value(), path);
  const Status status = writer->write_header(info, clock);
  if (!status.is_ok()) return status;
  return std::unique_ptr<WindowWriter>(std::move(writer));
}

}  // namespace marey::trace
