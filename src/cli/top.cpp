#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "src/analysis/analysis.h"
#include "src/cli/common.h"

namespace marey::cli {
namespace {

struct Flags {
  std::vector<std::string> paths;
  std::string sort = "total";
  std::string tier = "all";
  std::size_t limit = 0;
  bool json = false;
};

std::int64_t sort_key(const analysis::NameRow& row, const std::string& key) {
  if (key == "self") return row.self_ns;
  if (key == "count") return static_cast<std::int64_t>(row.count);
  if (key == "mean") return row.mean_ns();
  if (key == "max") return row.max_ns;
  return row.total_ns;
}

int run(const Flags& flags) {
  int exit_code = kExitOk;
  const auto traces = load("top", flags.paths, {}, &exit_code);
  if (traces.empty() && !flags.json) return exit_code;
  const analysis::TierFilter tier = flags.tier == "detail"     ? analysis::TierFilter::kDetail
                                    : flags.tier == "skeleton" ? analysis::TierFilter::kSkeleton
                                                               : analysis::TierFilter::kAll;
  std::vector<analysis::NameRow> rows = analysis::joined_name_table(traces, tier);
  // Shares are of all self time, so that they add up to one.
  std::int64_t whole_ns = 0;
  for (const auto& row : rows) whole_ns += row.self_ns;
  const auto share = [whole_ns](const analysis::NameRow& row) {
    return whole_ns == 0 ? 0.0 : static_cast<double>(row.self_ns) / static_cast<double>(whole_ns);
  };
  std::stable_sort(rows.begin(), rows.end(), [&flags](const auto& a, const auto& b) { return sort_key(a, flags.sort) > sort_key(b, flags.sort); });
  const std::size_t all = rows.size();
  if (flags.limit > 0 && rows.size() > flags.limit) rows.resize(flags.limit);
  if (flags.json) {
    Json list = Json::array();
    for (const auto& row : rows) {
      list.push_back({{"name", row.name}, {"category", row.category}, {"count", row.count}, {"total_ns", row.total_ns}, {"self_ns", row.self_ns},
                      {"mean_ns", row.mean_ns()}, {"min_ns", row.min_ns}, {"max_ns", row.max_ns}, {"share", share(row)}});
    }
    fmt::print("{}\n", json_text(list, 2));
    return exit_code;
  }
  std::vector<std::vector<std::string>> lines{{"name", "category", "count", "total", "self", "share", "mean", "min", "max"}};
  for (const auto& row : rows) {
    lines.push_back({cell(row.name), cell(row.category, 24), std::to_string(row.count), human_time(row.total_ns), human_time(row.self_ns),
                     fmt::format("{:.1f}%", 100 * share(row)), human_time(row.mean_ns()), human_time(row.min_ns), human_time(row.max_ns)});
  }
  fmt::print("{}", table(lines, {false, false, true, true, true, true, true, true, true}));
  if (rows.size() < all) fmt::print("... {} more names (--limit 0 shows all)\n", all - rows.size());
  return exit_code;
}

}  // namespace

void add_top(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("top", "Per name: count, total, self, mean, min, max, share");
  command->add_option("path", flags->paths, "Trace files, or folders of them (their counts are added; stages and units count once)")->required();
  command->add_option("--sort", flags->sort, "Largest first by")->check(CLI::IsMember({"total", "self", "count", "mean", "max"}))->capture_default_str();
  command->add_option("--tier", flags->tier, "Which events")->check(CLI::IsMember({"all", "detail", "skeleton"}))->capture_default_str();
  command->add_option("--limit", flags->limit, "Only so many names; 0: all")->capture_default_str();
  command->add_flag("--json", flags->json, "Print a JSON array, one object a name; times in ns");
  command->footer(std::string("Self is the time without direct children on the same thread; share is of all self time. Marks count with time 0.\n"
                              "An event that lies in overlapping windows of two roles counts in each.\n"
                              "Example: marey top --sort self --limit 20 marey-traces/FILE.pftrace\n") +
                  std::string(kExitCodesHelp));
  command->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace marey::cli
