# shellcheck shell=bash
# For the scripts beside this one.

say() { echo "marey: $*"; }

# fail <what happened> <what to do>
fail() {
  echo "marey: $1: $2" >&2
  exit 1
}

# configure <preset>: says nothing unless it fails.
configure() {
  local log=build/configure-$1.log
  mkdir -p build
  cmake --preset "$1" >"$log" 2>&1 || {
    cat "$log" >&2
    fail "cmake --preset $1 failed" "its messages are above"
  }
}
