#!/usr/bin/env python3
"""Makes a build tree's package the one that this interpreter imports, as `pip install --editable` would.

    .venv/bin/python scripts/register_build.py build/dev

Writes into the virtual environment: marey.pth (the package's folder), a dist-info, so that importlib.metadata knows version
and entry points, and bin/marey, a link to the built command line. Nothing is copied: a rebuild is seen at once.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent


def project_version() -> str:
    text = (ROOT / "CMakeLists.txt").read_text()
    match = re.search(r"project\(marey VERSION ([0-9.]+)", text)
    if match is None:
        sys.exit("CMakeLists.txt has no project(marey VERSION ...)")
    return match.group(1)


def entry_points(project: dict[str, Any]) -> str:
    groups: dict[str, dict[str, str]] = dict(project.get("entry-points", {}))
    if "scripts" in project:
        groups["console_scripts"] = project["scripts"]
    return "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items()) for group, entries in groups.items()
    )


def record_line(path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = Path(sys.argv[1]).resolve()
    if sys.prefix == sys.base_prefix:
        sys.exit(f"{sys.executable} is not in a virtual environment: run this with .venv/bin/python")
    prefix = Path(sys.prefix).resolve()
    if prefix != (ROOT / ".venv").absolute():
        print(f"{prefix} lies outside {ROOT}: left as it is (set PYTHONPATH={build / 'python'} to use this build)")
        return
    site = Path(sysconfig.get_path("purelib"))
    version = project_version()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for stale in site.glob("marey-*.dist-info"):
        shutil.rmtree(stale)

    info = f"marey-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.1\nName: marey\nVersion: {version}\nSummary: {project['description']}\n"
        f"License: {project['license']}\nRequires-Python: {project['requires-python']}\n"
    )
    files = {
        "marey.pth": f"{build / 'python'}\n",
        f"{info}/METADATA": metadata,
        f"{info}/entry_points.txt": entry_points(project),
        f"{info}/INSTALLER": "scripts/register_build.py\n",
    }
    lines = []
    for name, text in files.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text)
        lines.append(record_line(name, text.encode()))

    command = Path(sysconfig.get_path("scripts")) / "marey"
    command.unlink(missing_ok=True)
    command.symlink_to(os.path.relpath(build / "bin" / "marey", command.parent.resolve()))
    lines += [f"{os.path.relpath(command, site)},,", f"{info}/RECORD,,"]
    (site / info / "RECORD").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
