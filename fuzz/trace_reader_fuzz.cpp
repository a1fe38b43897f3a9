// Any bytes as a trace: no crash, no hang, and what comes out is consistent.

#include <cstdint>
#include <cstdlib>

#include "src/analysis/analysis.h"
#include "src/trace/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  marey::trace::ReadOptions options;
  options.max_uncompressed_bytes = 16 << 20;
  const auto read = marey::trace::read_trace_bytes({reinterpret_cast<const char*>(data), size}, "fuzz", options);
  if (!read.is_ok()) return 0;
  const marey::trace::Trace& trace = read.value();
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const marey::trace::Event& event = trace.events[i];
    if (event.duration_ns < 0 || event.track >= trace.tracks.size()) std::abort();
    if (event.parent != marey::trace::kNoParent && event.parent >= i) std::abort();  // parents come first
    if (i > 0 && trace.events[i - 1].begin_ns > event.begin_ns) std::abort();
    (void)trace.args_of(event);
  }
  (void)marey::analysis::unit_table(trace, std::nullopt);
  (void)marey::analysis::name_table(trace, marey::analysis::TierFilter::kAll);
  return 0;
}
