"""Prints "<version>;<folder>" of the PyTorch in this interpreter's site-packages, without importing it; exit 1: none."""

import re
import site
import sys
import sysconfig
from pathlib import Path

# Under pip's build isolation sys.path hides the environment's packages, but sysconfig still knows where they are.
paths = sysconfig.get_paths()
folders = [paths["purelib"], paths["platlib"], *site.getsitepackages(), *sys.path]
for folder in folders:
    version_file = Path(folder) / "torch" / "version.py"
    if not version_file.is_file():
        continue
    match = re.search(r"^__version__\s*(?::[^=]*)?=\s*['\"]([^'\"]+)['\"]", version_file.read_text(), re.MULTILINE)
    if match:
        print(f"{match.group(1)};{version_file.parent}")
        sys.exit(0)
sys.exit(1)
