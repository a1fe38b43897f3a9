#!/usr/bin/env bash
# clang-tidy with .clang-tidy's checks on the named sources. Without names: the recording core, where a mistake costs a
# training run, with every header that it includes. (All of the sources take many minutes.)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

tidy=$(command -v clang-tidy || command -v clang-tidy-14) || fail "clang-tidy is missing" "run scripts/setup.sh"
sources=("$@")
if ((${#sources[@]} == 0)); then
  mapfile -t sources < <(git ls-files 'src/base/*.cpp' 'src/event/*.cpp' 'src/schedule/*.cpp' 'src/recorder/*.cpp' 'src/session/*.cpp' \
    'src/sources/host/*.cpp' 'src/builtin/*.cpp')
fi
((${#sources[@]})) || fail "there is nothing to check" "name sources"
printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" "$tidy" --quiet -p build/dev 2> >(grep -v 'warnings generated' >&2) ||
  fail "clang-tidy found something" "it is above; to repeat it for one file: make tidy ARGS=<file>"
echo "clang-tidy: ${#sources[@]} sources and their headers are clean"
