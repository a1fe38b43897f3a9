#!/usr/bin/env bash
# Builds the release preset and measures every row of the speed table (bench/run.py). --smoke: a moment each, to see that all
# of it runs; --write: put the table into docs/performance.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

configure release
cmake --build --preset release -j "${JOBS:-$(nproc)}"
exec .venv/bin/python bench/run.py --build build/release "$@"
