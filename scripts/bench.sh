#!/usr/bin/env bash
# Builds the release preset and runs the benchmarks; options go to bench/run.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

mkdir -p build
cmake --preset release >build/configure-release.log || { cat build/configure-release.log; exit 1; }
cmake --build --preset release -j "$(nproc)"
PATH="$PWD/build/release/bin:$PWD/.venv/bin:$PATH" PYTHONPATH="$PWD/build/release/python" \
  .venv/bin/python bench/run.py --build build/release "$@"
