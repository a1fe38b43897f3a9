#!/usr/bin/env bash
# Format, style, types, arrows. Options: --changed (only files that differ from main, or are new), --fix (format them).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

changed=0 fix=0
for option in "$@"; do
  case $option in
    --changed) changed=1 ;;
    --fix) fix=1 ;;
    *) fail "unknown option $option" "there are --changed and --fix" ;;
  esac
done

# Files of this repository with these endings, new ones included.
files() {
  {
    if ((changed)); then
      local base
      base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
      git diff --name-only --diff-filter=d "$base" -- "$@"
    else
      git ls-files -- "$@"
    fi
    git ls-files --others --exclude-standard -- "$@"
  } | sort -u | while read -r file; do [[ -f $file && ! -L $file ]] && echo "$file"; done || true
}

mapfile -t cpp < <(files '*.cpp' '*.h' '*.hpp')
mapfile -t python < <(files '*.py' '*.pyi')
mapfile -t shell < <(files '*.sh' .ci/run)
bin=.venv/bin failed=0

run() {
  local name=$1
  shift
  "$@" || {
    echo "marey: $name found something; the command was: $*" | cut -c -300 >&2
    failed=1
  }
}

if ((fix)); then
  ((${#cpp[@]} == 0)) || $bin/clang-format -i "${cpp[@]}"
  ((${#python[@]} == 0)) || { $bin/ruff format --quiet "${python[@]}" && $bin/ruff check --quiet --fix-only "${python[@]}"; }
  exit
fi
((${#cpp[@]} == 0)) || run clang-format $bin/clang-format --dry-run --Werror "${cpp[@]}"
if ((${#python[@]})); then
  run "ruff format" $bin/ruff format --quiet --diff "${python[@]}"
  run ruff $bin/ruff check --quiet "${python[@]}"
  run mypy $bin/mypy
fi
((${#shell[@]} == 0)) || run shellcheck shellcheck -x "${shell[@]}"
run "the arrows" $bin/python scripts/check_arrows.py
if ((failed)); then
  fail "lint failed" "'make format' mends the format; the rest is above"
fi
echo "lint: ${#cpp[@]} C++, ${#python[@]} Python and ${#shell[@]} shell files are clean"
