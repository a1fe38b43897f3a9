#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "src/base/file_output.h"
#include "src/cli/common.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace marey::cli {
namespace {

namespace fs = std::filesystem;

struct Flags {
  bool json = false;
};

struct Check {
  std::string name;
  std::string state;  ///< "ok", "warn", "fail"
  std::string detail;
  std::string remedy;
};

/// The cycle counter as the recorder judges it; the reading side may not link the recorder.
bool counter_is_invariant() {
#if defined(__x86_64__)
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(0x80000007U, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1U << 8)) != 0;
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

fs::path own_folder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

/// The folder that the command was called in: a link in a virtual environment's bin stands beside its python.
fs::path called_folder() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string name;
  std::getline(file, name, '\0');
  if (name.find('/') != std::string::npos) return fs::path(name).parent_path();
  const char* path = std::getenv("PATH");
  std::string rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const fs::path folder = rest.substr(0, colon);
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
    if (::access((folder / name).c_str(), X_OK) == 0) return folder;
  }
  return own_folder();
}

std::string output_of(const std::string& command, int* code) {
  std::string text;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) {
    *code = -1;
    return text;
  }
  std::array<char, 4096> buffer;
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), size);
  *code = ::pclose(pipe);
  return text;
}

/// What another program answered need not have the types that are expected here.
std::string text_of(const Json& object, const char* key, const char* otherwise) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

Check check_clock() {
  const std::string source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const std::string detail = fmt::format("the kernel's clocksource is {}", source.empty() ? "unknown" : source);
  if (counter_is_invariant()) return {"clock", "ok", "invariant cycle counter; " + detail, ""};
  return {"clock", "warn", "no invariant cycle counter, so CLOCK_MONOTONIC is used; " + detail, "ranges cost about 20 ns more; nothing to do"};
}

/// The library that programs and the Python package load: beside the command in a build, in lib of an installation, in the
/// package of a virtual environment.
Check check_library() {
  std::error_code error;
  const fs::path own = own_folder();
  std::vector<fs::path> folders{own, own.parent_path() / "lib", own.parent_path() / "lib64"};
  for (const fs::path& lib : {own.parent_path() / "lib", called_folder().parent_path() / "lib"}) {
    for (fs::directory_iterator at(lib, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (name.ends_with("-linux-gnu")) folders.push_back(at->path());
      if (name.starts_with("python3")) folders.push_back(at->path() / "site-packages" / "marey" / "lib");
    }
  }
  for (const fs::path& folder : folders) {
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      if (at->path().filename().string().starts_with("libmarey.so")) return {"library", "ok", at->path().string(), ""};
    }
  }
  return {"library", "warn", fmt::format("no libmarey.so near {}", own.string()), "install Marey whole, or set LD_LIBRARY_PATH where programs start"};
}

Check check_output() {
  const char* configured = std::getenv("MAREY_OUT");
  const std::string folder = configured != nullptr && *configured != '\0' ? configured : "marey-traces";
  std::error_code error;
  const std::string probe = fs::exists(folder, error) ? folder : fs::absolute(folder, error).parent_path().string();
  const Status status = base::real_file_system().check_writable(probe);
  if (status.is_ok()) return {"output", "ok", fmt::format("traces go to '{}'", folder), ""};
  return {"output", "fail", status.message(), "set MAREY_OUT to a folder you may write to"};
}

void check_python(std::vector<Check>* checks, Json* python) {
  const fs::path beside = called_folder() / "python";
  std::error_code error;
  const std::string interpreter = fs::exists(beside, error) ? beside.string() : "python3";
  int code = 0;
  const std::string text = output_of(quoted(interpreter) + " -m marey._doctor 2>/dev/null", &code);
  *python = Json::parse(text, nullptr, false);
  if (code != 0 || python->is_discarded() || !python->is_object()) {
    *python = nullptr;
    checks->push_back({"python", "warn", fmt::format("{} cannot import marey", interpreter), "pip install marey into that environment, or use C++ alone"});
    return;
  }
  checks->push_back({"python", "ok", fmt::format("{} {} with marey {}", interpreter, text_of(*python, "python", "?"), text_of(*python, "marey", "?")), ""});
  const Json torch = python->value("torch", Json());
  const std::string version = text_of(torch, "version", "");
  if (version.empty()) {
    checks->push_back({"pytorch", "warn", "PyTorch is not installed there: operators cannot be recorded, everything else works", "pip install torch"});
    return;
  }
  const Json source = torch.value("source", Json());
  const std::string state = text_of(source, "state", "unknown");
  const std::string path = text_of(source, "path", "");
  const std::string reason = text_of(source, "reason", "");
  const std::string detail = fmt::format("PyTorch {}: source {}{}{}", version, state, path.empty() ? "" : " at " + path,
                                         reason.empty() ? "" : " (" + reason + ")");
  const bool good = state == "loaded" || state == "available";
  checks->push_back({"pytorch", good ? "ok" : "warn", detail,
                     good ? "" : state == "buildable" ? "it is built at first use; nothing to do" : "install a C++ compiler, so that it can be built at first use"});
}

int run(const Flags& flags) {
  std::vector<Check> checks;
  checks.push_back({"marey", "ok", fmt::format("{} at {}", MAREY_VERSION, own_folder().string()), ""});
  checks.push_back(check_clock());
  checks.push_back(check_output());
  checks.push_back(check_library());
  Json python;
  check_python(&checks, &python);
  bool failed = false;
  for (const Check& check : checks) failed = failed || check.state == "fail";
  if (flags.json) {
    Json list = Json::array();
    for (const Check& check : checks) {
      list.push_back({{"check", check.name}, {"state", check.state}, {"detail", check.detail}, {"remedy", text_or_null(check.remedy)}});
    }
    fmt::print("{}\n", json_text({{"marey_version", MAREY_VERSION}, {"checks", list}, {"python", python}}, 2));
  } else {
    for (const Check& check : checks) {
      fmt::print("{:<5} {:<8} {}\n", check.state, check.name, check.detail);
      if (!check.remedy.empty()) fmt::print("{:<14} -> {}\n", "", check.remedy);
    }
  }
  return failed ? kExitMissing : kExitOk;
}

}  // namespace

void add_doctor(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("doctor", "Check this machine: clock, output folder, library, Python package, PyTorch source");
  command->add_flag("--json", flags->json, "Print JSON: checks, and what the Python package says");
  command->footer(std::string("Example: marey doctor\n") + std::string(kExitCodesHelp));
  command->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace marey::cli
