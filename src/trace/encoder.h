#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace marey::trace {

/// Appends protobuf wire format to a string. protozero does the same for messages that are built rarely; this is the few
/// primitives that the two hot packets need without its nested-message bookkeeping.
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

/// Tag of a field: wire type 0 varint, 1 fixed64, 2 length-delimited.
constexpr std::uint32_t tag(std::uint32_t number, std::uint32_t wire_type) { return number << 3U | wire_type; }

}  // namespace marey::trace
