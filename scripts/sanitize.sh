#!/usr/bin/env bash
# Unit tests and C++ examples under a sanitizer: sanitize.sh asan|tsan
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

preset=${1:?asan or tsan}
build=build/$preset
mkdir -p build
cmake --preset "$preset" >"build/configure-$preset.log" || { cat "build/configure-$preset.log"; exit 1; }
cmake --build --preset "$preset" -j "$(nproc)" --target marey_unit_tests marey_cpp_api_tests examples
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
# A process each would pay the sanitizer's start for every test: one process runs them all, in an order of its own.
"$build/bin/marey_unit_tests" --gtest_brief=1 --gtest_shuffle
"$build/bin/marey_cpp_api_tests" --gtest_brief=1 --gtest_shuffle
ctest --test-dir "$build" -L example -j "$(nproc)" --output-on-failure --no-tests=error
