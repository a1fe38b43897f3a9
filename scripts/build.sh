#!/usr/bin/env bash
# Builds the dev preset and makes it what .venv imports.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

configure dev
cmake --build --preset dev -j "${JOBS:-$(nproc)}"
.venv/bin/python scripts/register_build.py build/dev
