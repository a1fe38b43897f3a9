#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace marey::trace {

/// Appends protobuf wire format to a string. protozero does the same for messages that are built rarely; this is the
/// few primitives that the two hot packets need without its nested-message bookkeeping.
class Encoder {
 public:
  static constexpr std::size_t kMaxVarint = 10;

  static char* varint(char* at, std::uint64_t value) {
    while (value >= 0x80) {
      *at++ = static_cast<char>(value | 0x80);
      value >>= 7U;
    }
    *at++ = static_cast<char>(value);
    return at;
  }
  static constexpr std::size_t varint_size(std::uint64_t value) {
    std::size_t size = 1;
    while (value >= 0x80) {
      value >>= 7U;
      ++size;
    }
    return size;
  }
  static char* fixed64(char* at, std::uint64_t value) {
    std::memcpy(at, &value, sizeof value);  // little-endian hosts only: x86-64 and aarch64
    return at + sizeof value;
  }
};

/// Bytes that grow at the end. Unlike std::string it hands out room without filling it first.
class ByteBuffer {
 public:
  explicit ByteBuffer(std::size_t capacity) : data_(new char[capacity]), capacity_(capacity) {}

  /// Room for `size` bytes at the end; commit() says how far it was used.
  char* room(std::size_t size) {
    if (capacity_ - size_ < size) [[unlikely]]
      grow(size);
    return data_.get() + size_;
  }
  void commit(const char* end) { size_ = static_cast<std::size_t>(end - data_.get()); }
  void append(std::string_view bytes) {
    if (bytes.empty()) return;
    std::memcpy(room(bytes.size()), bytes.data(), bytes.size());
    size_ += bytes.size();
  }
  void clear() { size_ = 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] const char* data() const { return data_.get(); }
  [[nodiscard]] std::string_view view() const { return {data_.get(), size_}; }

 private:
  void grow(std::size_t size) {
    capacity_ = 2 * capacity_ + size;
    std::unique_ptr<char[]> larger(new char[capacity_]);
    std::memcpy(larger.get(), data_.get(), size_);
    data_ = std::move(larger);
  }

  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0;
  std::size_t capacity_;
};

/// Tag of a field: wire type 0 varint, 1 fixed64, 2 length-delimited.
constexpr std::uint32_t tag(std::uint32_t number, std::uint32_t wire_type) {
  return number << 3U | wire_type;
}

}  // namespace marey::trace
