"""The installed C++ package: find_package(marey), pkg-config, and what they bring, from C++ and from C."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.installed import ROOT, clean_environment, run

pytestmark = [pytest.mark.install, pytest.mark.xdist_group("cpp_package")]

CONSUMER = ROOT / "tests" / "install" / "consumer"


@pytest.fixture(scope="module")
def programs(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("consumer")
    run(
        "cmake",
        "-S",
        CONSUMER,
        "-B",
        build,
        "-G",
        "Ninja",
        f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror",
    )
    run("cmake", "--build", build)
    return build


def check_window(prefix: Path, printed: str) -> None:
    """One window, of mini-batches 2 and 3 and the ranges in them, as the installed command line reads it."""
    (path,) = printed.split()
    info = json.loads(run(prefix / "bin" / "marey", "info", "--json", path))
    info = info[0] if isinstance(info, list) else info
    assert (info["state"], info["complete"], info["role"]) == ("sealed", True, "consumer")
    assert (info["first_unit"], info["last_unit"], info["recorded_units"]) == (2, 3, 2)
    events = [json.loads(line) for line in run(prefix / "bin" / "marey", "dump", "--json", path).splitlines()]
    assert [event["args"]["batch"] for event in events if event["name"] == "forward"] == [2, 3]


@pytest.mark.parametrize("name", ["cpp_program", "c_program"])
def test_find_package_builds_a_program_that_records(programs: Path, prefix: Path, tmp_path: Path, name: str) -> None:
    check_window(prefix, run(programs / name, tmp_path))


def test_pkg_config_builds_a_program_that_records(prefix: Path, tmp_path: Path) -> None:
    library = next(prefix.rglob("libmarey.so")).parent
    flags = run("pkg-config", "--cflags", "--libs", "marey", PKG_CONFIG_PATH=str(library / "pkgconfig")).split()
    run("c++", "-std=c++20", CONSUMER / "program.cpp", "-o", tmp_path / "program", *flags)
    check_window(prefix, run(tmp_path / "program", tmp_path / "traces", LD_LIBRARY_PATH=str(library)))


def test_another_minor_version_is_refused(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(p CXX)\nfind_package(marey 0.99 REQUIRED)\n"
    )
    words = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), f"-DCMAKE_PREFIX_PATH={prefix}"]
    done = subprocess.run(words, capture_output=True, text=True, env=clean_environment())
    assert done.returncode != 0
    assert "compatible with requested version" in " ".join(done.stderr.split())


def test_the_tree_holds_the_public_parts_and_no_python(prefix: Path) -> None:
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    headers = {f"include/{path.relative_to(ROOT / 'include')}" for path in (ROOT / "include").rglob("*.h*")}
    assert headers <= files
    assert "bin/marey" in files
    assert not [name for name in files if name.endswith((".py", ".a")) or name.startswith(("marey/", "src/"))]


def test_the_library_exports_marey_s_names_only(prefix: Path) -> None:
    library = next(prefix.rglob("libmarey.so"))
    names = [line.split(maxsplit=1)[0] for line in run("nm", "-D", "--defined-only", "--format=posix", library).splitlines()]
    assert "marey_version" in names
    assert [name for name in names if not re.match(r"marey_|_Z\w*N5marey6detail", name)] == []
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", library))
    assert {re.sub(r"\.so.*", "", name) for name in needed} <= {
        "libstdc++", "libm", "libgcc_s", "libc", "libpthread", "libdl", "libfmt", "libdeflate", "libz", "ld-linux-x86-64", "ld-linux-aarch64",
    }  # fmt: skip
