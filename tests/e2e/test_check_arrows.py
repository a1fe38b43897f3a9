"""scripts/check_arrows.py finds each kind of breach, names its place and rule, and lets the tree as it is pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

GOOD = {
    "include/marey/marey.h": "#include <stddef.h>\n",
    "include/marey/detail/lane.h": '#include <atomic>\n#include "marey/detail/slot.h"\nnamespace marey::detail { struct Lane; }\n',
    "include/marey/range.h": """
        #include "marey/detail/lane.h"
        #define MAREY_RANGE(name) marey::detail::Site site(name)
        namespace marey {
        namespace detail { template <int n> struct Literal {}; Literal<1> make(detail::Lane&); }
        // detail::Lane is named in comments
        template <detail::Literal<1> kKey> int arg(int value);
        class Range {
         public:
          explicit Range(int name) noexcept : lane_(detail::lane()) { detail::begin(name); }
          int id() const { return static_cast<int>(detail::Id{1}.value); }
          unsigned gate(unsigned mask = detail::kAll) const;
         private:
          detail::Lane* lane_ = nullptr;
        };
        }  // namespace marey
    """,
    "src/base/CMakeLists.txt": "marey_add_library(marey_base fmt::fmt)",
    "src/event/CMakeLists.txt": "marey_add_library(marey_event marey_base)",
    "src/schedule/CMakeLists.txt": "marey_add_library(marey_schedule marey_base)",
    "src/schedule/schedule.h": '#include <vector>\n#include "src/base/status.h"\n',
    "src/trace/CMakeLists.txt": "marey_add_library(marey_trace marey_event marey_schedule # marey_recorder\n marey_base ZLIB::ZLIB)",
    "src/trace/writer.h": '#include <thread>\n#include "src/schedule/schedule.h"\n#include "src/event/id.h"\n/* #include "src/cli/a.h" */\n',
    "src/recorder/CMakeLists.txt": "marey_add_library(marey_recorder marey_trace)",
    "src/recorder/lanes.cpp": '#include "marey/detail/lane.h"\n#include "src/trace/writer.h"\n',
    "src/session/CMakeLists.txt": "marey_add_library(marey_session marey_recorder marey_schedule)",
    "src/sources/host/CMakeLists.txt": "marey_add_library(marey_source_host marey_event)",
    "src/sources/torch/CMakeLists.txt": "add_library(marey_torch SHARED a.cpp)\ntarget_link_libraries(marey_torch PRIVATE marey)",
    "src/builtin/CMakeLists.txt": "add_library(marey SHARED a.cpp $<TARGET_OBJECTS:marey_session>)\nadd_library(marey::marey ALIAS marey)",
    "src/analysis/CMakeLists.txt": "marey_add_library(marey_analysis marey_trace)",
    "src/export/chrome/CMakeLists.txt": "marey_add_library(marey_export_chrome marey_analysis)",
    "src/export/chrome/chrome.cpp": '#include <fstream>\n#include "src/analysis/units.h"\n',
    "src/cli/CMakeLists.txt": "add_executable(marey_cli a.cpp)\ntarget_link_libraries(marey_cli PRIVATE marey_export_chrome marey_analysis)",
    "src/cli/export.cpp": '#include "src/export/chrome/chrome.h"\n#include "src/report/report.h"\n',
    "python/src/core.cpp": '#include <Python.h>\n#include "marey/marey.h"\n',
    "python/CMakeLists.txt": "nanobind_add_module(marey_core a.cpp)\ntarget_link_libraries(marey_core PRIVATE marey)",
    "examples/ppo/main.cpp": "#include <marey/marey.hpp>\n",
    "tests/unit/a_test.cpp": '#include "src/recorder/lanes.h"\n#include "src/analysis/units.h"\n',
}

BAD = [
    # file, its text, line of the breach, words of the message
    ("src/analysis/units.cpp", '\n#include "src/recorder/lanes.h"\n', 2, "readers never know the recorder"),
    ("src/trace/reader.cpp", '#include "src/session/session.h"\n', 1, "readers never know"),
    ("src/export/csv/csv.cpp", '#include "src/sources/host/host.h"\n', 1, "readers never know"),
    ("src/export/csv/csv.cpp", '#include "src/export/chrome/chrome.h"\n', 1, "arrows point down"),
    ("src/recorder/drain.cpp", '#include "src/export/chrome/chrome.h"\n', 1, "what records never knows exporters"),
    ("src/session/a.cpp", '#include "src/analysis/units.h"\n', 1, "what records never knows exporters or analysis"),
    ("src/recorder/drain.cpp", '#include "src/session/session.h"\n', 1, "arrows point down"),
    ("src/sources/nvtx/nvtx.cpp", '#include "src/recorder/lanes.h"\n', 1, "a source sees only the event sink"),
    ("src/sources/nvtx/nvtx.cpp", '#include "src/sources/host/host.h"\n', 1, "a source sees only the event sink"),
    ("src/base/ring.h", '#include "src/event/id.h"\n', 1, "base may use nothing"),
    ("src/base/ring.h", '#include "marey/marey.h"\n', 1, "base stands below the public headers"),
    ("src/report/report.cpp", '#include "src/cli/common.h"\n', 1, "arrows point down"),
    ("src/schedule/plan.cpp", "#include <string>\n#include <fstream>\n", 2, "schedule is pure"),
    ("src/analysis/overlap.cpp", "#  include <chrono>\n", 1, "analysis is pure"),
    ("src/analysis/overlap.cpp", '#include "src/base/file_output.h"\n', 1, "analysis is pure"),
    ("src/colour/colour.cpp", '#include "src/base/status.h"\n', 1, "colour has no place in the design's list"),
    ("python/src/a.cpp", '#include "src/session/session.h"\n', 1, "the Python glue converts"),
    ("examples/ppo/net.cpp", '#include "src/base/status.h"\n', 1, "examples use what users have"),
    ("include/marey/a.h", '#include "src/base/status.h"\n', 1, "includes only itself"),
    ("include/marey/a.h", "#include <fmt/format.h>\n", 1, "includes only itself"),
    ("include/marey/a.h", "#include <libdeflate.h>\n", 1, "includes only itself"),
    ("include/marey/detail/a.h", '#include "marey/range.h"\n', 1, "detail lies below the public headers"),
    ("include/marey/a.h", "namespace marey {\ndetail::Lane* lane();\n}\n", 2, "detail::Lane in a public signature"),
    ("include/marey/a.h", "namespace marey {\ninline void end(const detail::Token& token) { use(token); }\n}\n", 2, "detail::Token"),
    ("include/marey/a.h", "namespace marey {\nclass A {\n public:\n  A(int a,\n    detail::Lane* b);\n};\n}\n", 5, "detail::Lane"),
    ("include/marey/a.h", "namespace marey {\nstruct A : detail::Base {\n};\n}\n", 2, "detail::Base"),
    ("include/marey/a.h", "namespace marey {\nstruct A {\n  detail::Slot slot;\n};\n}\n", 3, "detail::Slot"),
    ("include/marey/a.h", "namespace marey {\nusing Slot = detail::Slot;\n}\n", 2, "detail::Slot"),
    ("src/analysis/CMakeLists.txt", "marey_add_library(marey_analysis\n  marey_trace marey_session)", 1, "marey_analysis links marey_session"),
    ("src/cli/CMakeLists.txt", "add_executable(marey_cli a.cpp)\n\ntarget_link_libraries(marey_cli PRIVATE marey_recorder)", 3, "links marey_recorder"),
    ("src/builtin/CMakeLists.txt", "add_library(marey SHARED a.cpp $<TARGET_OBJECTS:marey_analysis>)", 1, "marey links marey_analysis"),
    ("src/analysis/CMakeLists.txt", "marey_add_library(marey_analysis marey::marey)", 1, "readers never know"),
]  # fmt: skip


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def check(root: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(ROOT / "scripts" / "check_arrows.py"), str(root)]
    return subprocess.run(words, capture_output=True, text=True)


def test_a_tree_along_the_arrows_passes(tmp_path: Path) -> None:
    write_tree(tmp_path, GOOD)
    done = check(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("name", "text", "line", "words"), BAD, ids=[f"{name}: {words}" for name, _, _, words in BAD])
def test_a_breach_is_named_with_its_place_and_rule(tmp_path: Path, name: str, text: str, line: int, words: str) -> None:
    write_tree(tmp_path, GOOD | {name: text})
    done = check(tmp_path)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1, done.stdout
    assert done.stdout.startswith(f"{name}:{line}: "), done.stdout
    assert words in done.stdout


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert done.returncode == 2
    assert "has no src folder" in done.stderr


def test_this_repository_keeps_the_arrows() -> None:
    done = check(ROOT)
    assert (done.returncode, done.stdout) == (0, "")
