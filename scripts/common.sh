# shellcheck shell=bash
# For the scripts beside this one.

say() { echo "marey: $*"; }

# fail <what happened> <what to do>
fail() {
  echo "marey: $1: $2" >&2
  exit 1
}
