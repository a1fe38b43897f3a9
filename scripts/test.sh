#!/usr/bin/env bash
# Everything that must pass before a change goes in, one stage after the other. The first failure stops it, with the command
# that repeats the stage. It ends with the closing line of the end-to-end tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

times=()

# stage <name> <command ...>
stage() {
  local name=$1 begin=$SECONDS
  shift
  echo "=== $name: $*"
  "$@" || fail "$name failed" "to repeat it: $*"
  times+=("$(printf '%4d s  %s' $((SECONDS - begin)) "$name")")
}

stage "build" make build
stage "lint" make lint
stage "unit tests" make unit
stage "AddressSanitizer" make asan
stage "ThreadSanitizer" make tsan
stage "clang-tidy" make tidy
stage "fuzz targets, a moment each" make fuzz FUZZ_SECONDS=5
stage "benchmarks, smoke" make bench ARGS=--smoke
echo "=== stages so far"
printf '%s\n' "${times[@]}"
stage "end-to-end and install tests" make pytest
