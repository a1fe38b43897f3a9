#!/usr/bin/env python3
"""Checks that the parts of Marey know each other only along the design's arrows (docs/design/design.md §3).

Reads the #include lines of the sources and the link lines of the CMake files, and the public headers' signatures. Prints one
line a breach, `file:line: what: the rule`, and exits with 1 when there is one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# part -> the parts that it may include or link. `sources/*` and `export/*` stand for each folder below them.
ARROWS: dict[str, set[str]] = {
    "base": set(),
    "event": {"base"},
    "schedule": {"base"},
    "trace": {"event", "schedule", "base"},
    "config": {"schedule", "event", "base"},
    "recorder": {"trace", "schedule", "event", "base"},
    "sources": {"event", "base"},
    "sources/*": {"sources", "event", "base"},
    "session": {"sources", "recorder", "trace", "schedule", "config", "event", "base"},
    "builtin": {"session", "sources/*", "sources", "recorder", "trace", "schedule", "config", "event", "base"},
    "inject": {"session", "config", "event", "base"},
    "analysis": {"trace", "schedule", "event", "base"},
    "export/*": {"analysis", "trace", "schedule", "event", "base"},
    "report": {"analysis", "trace", "schedule", "event", "base"},
    "cli": {"report", "export/*", "analysis", "trace", "session", "config", "schedule", "event", "base"},
    "python": set(),
}
# Parts that may use the public headers (include/marey); readers and the parts below the recorder have no need of them.
USES_PUBLIC = {"recorder", "sources", "sources/*", "session", "builtin", "inject", "cli", "python"}
# Parts that may link libmarey itself, as users do: over its C ABI. (A source may be a library of its own.)
LINKS_LIBMAREY = {"sources/*", "inject", "cli", "python"}
READERS = {"trace", "analysis", "export/*", "report"}
RECORDING = {"recorder", "sources", "sources/*", "session"}

PURE = {"schedule", "analysis"}
IMPURE_SYSTEM = re.compile(
    r"^(fstream|iostream|ostream|istream|filesystem|cstdio|stdio\.h|chrono|ctime|time\.h|thread|mutex|shared_mutex|future|latch"
    r"|barrier|semaphore|stop_token|condition_variable|pthread\.h|unistd\.h|fcntl\.h|dirent\.h|dlfcn\.h|poll\.h|sys/.*)$"
)
IMPURE_OWN = re.compile(r"^src/base/(file_\w+|log|clock\w*|dlopen\w*|library\w*)\.h$")
# Headers of the compiler and the C library that are no file of somebody else's library.
PLATFORM = re.compile(r"^([a-z0-9_]+(\.h)?|sys/\w+\.h|linux/\w+\.h)$")
THIRD_PARTY = re.compile(r"^(libdeflate|zlib|sqlite3|simdjson|yaml|Python|nanobind|cupti\w*|nvToolsExt|ittnotify)\.h$")

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SOURCE_SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".inc"}
SIDE_FOLDERS = {"tests", "bench", "fuzz", "examples"}


@dataclass(frozen=True, order=True)
class Breach:
    file: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def part_of(path: Path) -> str | None:
    """The part that a file of the repository belongs to; None for those outside the arrows (tests, examples, ...)."""
    words = path.parts
    if words[0] == "include":
        return "public/detail" if len(words) > 3 and words[2] == "detail" else "public"
    if words[0] == "python":
        return "python"
    if words[0] != "src" or len(words) < 3:
        return None
    if words[1] in ("sources", "export") and len(words) > 3:
        return f"{words[1]}/{words[2]}"
    return words[1]


def kind_of(part: str) -> str:
    """`sources/host` -> `sources/*`: the part as ARROWS names it."""
    folder, _, below = part.partition("/")
    return f"{folder}/*" if below else part


def why_not(user: str, used: str) -> str | None:
    """The rule against `user` knowing `used`, or None when there is an arrow."""
    user_kind, used_kind = kind_of(user), kind_of(used)
    if user == used:
        return None
    if user_kind not in ARROWS:
        return f"{user} has no place in the design's list of folders: add it to scripts/check_arrows.py and to the design"
    if used_kind in ARROWS[user_kind]:
        return None
    may = ", ".join(sorted(ARROWS[user_kind])) or "nothing"
    if user_kind in READERS and used_kind in RECORDING | {"builtin"}:
        rule = "readers never know the recorder, a source or a session"
    elif user_kind in RECORDING and used_kind in {"analysis", "export/*", "report", "cli"}:
        rule = "what records never knows exporters or analysis"
    elif user_kind == "sources/*":
        rule = "a source sees only the event sink that it is given"
    elif user_kind == "python":
        rule = "the Python glue converts and does nothing else, over the public headers"
    else:
        rule = "arrows point down the design's list only"
    return f"{rule}; {user} may use {may}"


def without_comments(text: str) -> str:
    """The text with comments and the insides of string literals blanked, line by line as it was."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if found[0] in "\"'":
            return found[0] + " " * (len(found) - 2) + found[-1]
        return re.sub(r"[^\n]", " ", found)

    return pattern.sub(blank, text)


def check_includes(file: Path, text: str) -> Iterator[Breach]:
    part = part_of(file)
    in_comment = re.compile(r"/\*.*?\*/", re.DOTALL).sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    for number, line in enumerate(in_comment.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            for text_ in check_include(part, file, match.group(1) == '"', match.group(2)):
                yield Breach(file, number, text_)


def check_include(part: str | None, file: Path, quoted: bool, name: str) -> Iterator[str]:
    own = name.startswith(("src/", "marey/"))
    if file.parts[0] == "examples":
        if name.startswith("src/"):
            yield f"includes {name}: examples use what users have, <marey/...>"
        return
    if part is None:
        return
    if part.startswith("public"):
        if not name.startswith("marey/") and (quoted or not PLATFORM.match(name) or THIRD_PARTY.match(name)):
            yield f"includes {name}: include/marey includes only itself and the standard library"
        if part == "public/detail" and name.startswith("marey/") and not name.startswith("marey/detail/"):
            yield f"includes {name}: include/marey/detail lies below the public headers"
        return
    if part in PURE and ((not quoted and IMPURE_SYSTEM.match(name)) or IMPURE_OWN.match(name)):
        yield f"includes {name}: {part} is pure, without files, clocks, threads or output"
    if not own:
        return
    if name.startswith("marey/"):
        if kind_of(part) not in USES_PUBLIC:
            yield f"includes {name}: {part} stands below the public headers, which are for those who use libmarey"
        return
    used = part_of(Path(name))
    rule = why_not(part, used) if used else f"{name} lies in no part"
    if rule:
        yield f"{part} includes {name}: {rule}"


COMMAND = re.compile(
    r"\b(marey_add_\w+|target_link_libraries|add_library|add_executable|nanobind_add_module)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)"
)
DEFINES = ("marey_add_", "add_library", "add_executable", "nanobind_add_module")
TARGET = re.compile(r"\bmarey(?:::marey|_\w+)?\b(?![./])")


def check_links(files: dict[Path, str]) -> Iterator[Breach]:
    """The CMake files' link lines. A target belongs to the folder that defines it."""
    commands: list[tuple[Path, int, str, list[str]]] = []
    for file, raw in files.items():
        text = re.sub(r"#[^\n]*", "", raw)
        for match in COMMAND.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            commands.append((file, line, match.group(1), match.group(2).split()))
    home = {
        words[0]: part
        for file, _, command, words in commands
        if command.startswith(DEFINES) and words and "ALIAS" not in words and (part := part_of(file))
    }
    home["marey::marey"] = home.get("marey", "builtin")
    for file, line, _command, words in commands:
        if not words or "ALIAS" in words:
            continue
        user = home.get(words[0])
        if user is None:
            continue
        for target in TARGET.findall(" ".join(words[1:])):
            used = home.get(target)
            if used == "builtin" and kind_of(user) in LINKS_LIBMAREY:
                continue
            rule = why_not(user, used) if used else None
            if rule:
                yield Breach(file, line, f"{words[0]} links {target}: {rule}")


def check_signatures(file: Path, raw: str) -> Iterator[Breach]:
    """`detail::` in what a caller of a public header sees: signatures, bases, aliases and data; not bodies or macros."""
    text = re.sub(
        r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), without_comments(raw), flags=re.MULTILINE
    )
    # One entry an open brace: whether what is declared directly inside is public.
    visible: list[bool] = [True]
    start = 0
    i = 0

    def seen(end: int) -> Iterator[Breach]:
        declaration = text[start:end]
        if not visible[-1] or re.match(r"\s*(friend|static_assert)\b", declaration):
            return
        # A template's own parameters are deduced, not named by callers; nor are initial values.
        declaration = re.sub(r"^\s*template\s*<[^{;]*?>\s", lambda m: " " * len(m.group()), declaration)
        declaration = re.sub(
            r"=(?!=)[^,;)]*" if "using" not in declaration else r"$^", lambda m: " " * len(m.group()), declaration
        )
        declaration = re.sub(r"\)\s*(noexcept\s*)?:(?!:).*", ")", declaration, flags=re.DOTALL)
        found = re.search(r"\bdetail::\w+", declaration)
        if found:
            line = text.count("\n", 0, start + found.start()) + 1
            yield Breach(file, line, f"{found.group()} in a public signature: include/marey/detail is never in one")

    while i < len(text):
        char = text[i]
        if char == ";":
            yield from seen(i)
            start = i + 1
        elif char == ":" and re.match(r"\s*(public|private|protected)\s*$", text[start:i]) and text[i : i + 2] != "::":
            visible[-1] = text[start:i].strip() == "public"
            start = i + 1
        elif char == "}":
            if len(visible) > 1:
                visible.pop()
            start = i + 1
        elif char == "{":
            head = text[start:i].strip()
            words = re.sub(r"^template\s*<[^{;]*?>\s", "", head)
            if re.match(r"(inline\s+)?namespace\b", words) or re.match(r'extern\s*"[^"]*"$', words):
                visible.append(visible[-1] and not re.search(r"\bdetail\b", words))
                start = i + 1
            elif re.match(r"(typedef\s+)?(class|struct|union|enum)\b", words) and "(" not in re.sub(
                r"\[\[.*?\]\]|alignas\([^)]*\)", "", words
            ):
                yield from seen(i)
                visible.append(visible[-1] and not words.startswith("class"))
                start = i + 1
            else:  # a body or an initial value: step over it
                yield from seen(i)
                depth = 1
                i += 1
                while i < len(text) and depth:
                    depth += {"{": 1, "}": -1}.get(text[i], 0)
                    i += 1
                start = i
                continue
        i += 1


def check(root: Path) -> list[Breach]:
    breaches: list[Breach] = []
    cmake: dict[Path, str] = {}
    for folder in ("include", "src", "python", "examples"):
        for path in sorted((root / folder).rglob("*")):
            if not path.is_file():
                continue
            file = path.relative_to(root)
            if path.name == "CMakeLists.txt":
                cmake[file] = path.read_text()
            elif path.suffix in SOURCE_SUFFIXES:
                text = path.read_text()
                breaches += check_includes(file, text)
                if part_of(file) == "public":
                    breaches += check_signatures(file, text)
    breaches += check_links(cmake)
    return sorted(set(breaches))


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks the arrows between the parts of Marey.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent, help="the repository")
    root = parser.parse_args().root
    if not (root / "src").is_dir():
        print(f"{root} has no src folder: name the repository", file=sys.stderr)
        return 2
    breaches = check(root)
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
