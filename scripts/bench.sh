#!/usr/bin/env bash
# Builds the release preset and runs every benchmark in it. --smoke: a moment each, to see that they run; other options are
# Google Benchmark's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

options=()
for option in "$@"; do
  if [[ $option == --smoke ]]; then
    options+=(--benchmark_min_time=0.001)
  else
    options+=("$option")
  fi
done
configure release
cmake --build --preset release -j "${JOBS:-$(nproc)}"
shopt -s nullglob
benchmarks=(build/release/bin/*_bench)
((${#benchmarks[@]})) || fail "no benchmark was built" "bench/CMakeLists.txt must put <name>_bench into build/release/bin"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for benchmark in "${benchmarks[@]}"; do
  MAREY_OUT=$out "$benchmark" "${options[@]}"
done
