#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a number of seconds, from its stored inputs (fuzz/corpus/<target>); what it finds
# stays in build/fuzz/found/<target>.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

seconds=${1:?seconds for each target}
configure fuzz
cmake --build --preset fuzz -j "${JOBS:-$(nproc)}"
shopt -s nullglob
targets=(build/fuzz/bin/*_fuzz)
((${#targets[@]})) || fail "no fuzz target was built" "fuzz/CMakeLists.txt must put <name>_fuzz into build/fuzz/bin"
for target in "${targets[@]}"; do
  name=$(basename "$target")
  found=build/fuzz/found/$name
  mkdir -p "$found"
  corpus=("$found")
  [[ ! -d fuzz/corpus/$name ]] || corpus+=("fuzz/corpus/$name")
  log=build/fuzz/$name.log
  "$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -artifact_prefix="$found/" "${corpus[@]}" >"$log" 2>&1 || {
    tail -40 "$log"
    fail "$name failed" "the input is named above; to repeat it: $target <input>"
  }
  tail -1 "$log" | sed "s/^/$name: /"
done
