#!/usr/bin/env bash
# Unit tests and C++ examples under a sanitizer, and the Python demo under AddressSanitizer: sanitize.sh asan|tsan
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

preset=${1:?asan or tsan}
build=build/$preset
configure "$preset"
cmake --build --preset "$preset" -j "${JOBS:-$(nproc)}" --target marey_unit_tests marey_cpp_api_tests examples
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
# Older ThreadSanitizers do not start where the kernel spreads addresses widely.
fixed_addresses=()
! setarch -R true 2>/dev/null || fixed_addresses=(setarch -R)
# A process for each test would pay the sanitizer's start every time: one runs all tests of a binary, in an order of its own.
for tests in "$build"/bin/*_tests; do
  "${fixed_addresses[@]}" "$tests" --gtest_brief=1 --gtest_shuffle
done
"${fixed_addresses[@]}" ctest --test-dir "$build" -L example -j "${JOBS:-$(nproc)}" --output-on-failure --no-tests=error

# The demo, with the extension and the PyTorch source that are built with the sanitizer, in a Python that is not.
if [[ $preset == asan ]] && .venv/bin/python -c 'import torch' 2>/dev/null; then
  cmake --build --preset asan -j "${JOBS:-$(nproc)}" --target marey_core marey_torch marey_cli
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
  # Python and PyTorch keep memory to the end on purpose: no leak check here.
  LD_PRELOAD="$(c++ -print-file-name=libasan.so) $(c++ -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
    PYTHONPATH=$PWD/build/asan/python .venv/bin/python examples/grpo/train.py --steps 4 --contents shapes --out "$out/traces"
fi
