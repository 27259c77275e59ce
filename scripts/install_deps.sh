#!/usr/bin/env bash
# Installs everything that building and testing needs on Debian 12, from its packages alone. Safe to run again.
#   scripts/install_deps.sh             build, tests, checks
#   scripts/install_deps.sh --oracle    also a Python environment (.venv) for goldens, from PyPI
#   scripts/install_deps.sh --plots     the same environment with what figures need
#   scripts/install_deps.sh --dashboard the same environment with what drives a browser, and Chromium (290 MB)
set -euo pipefail

cd "$(dirname "$0")/.."

packages=(
  build-essential cmake ninja-build pkg-config ccache git python3
  clang clang-format clang-tidy libclang-rt-dev
  libfmt-dev libspdlog-dev libsimdjson-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev
  libprotobuf-dev libhwloc-dev libcli11-dev libboost1.81-dev libgtest-dev libbenchmark-dev
  prometheus python3-prometheus-client  # promtool and the parser that check /metrics; nothing of it is started
)

environment=${1:-}
[[ "$environment" == --@(oracle|plots|dashboard) ]] && packages+=(python3-venv)
[[ "$environment" == --dashboard ]] && packages+=(chromium)

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "install_deps: needs root or sudo for: $*" >&2
    exit 1
  fi
}

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" ||
    missing+=("$package")
done

# A package that brings a service must not start it here: Debian asks this file, and 101 is "no".
policy=/usr/sbin/policy-rc.d
install_quietly() {
  local ours=0 status=0
  if [[ ! -e $policy ]]; then
    ours=1
    printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
    as_root chmod 755 $policy
  fi
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" || status=$?
  if ((ours)); then as_root rm -f $policy; fi
  return $status
}

if ((${#missing[@]} > 0)); then
  echo "install_deps: installing ${missing[*]}"
  as_root apt-get update -qq
  install_quietly "${missing[@]}"
fi

if [[ "$environment" == --@(oracle|plots|dashboard) ]]; then
  python3 -m venv .venv
  .venv/bin/pip install --quiet -r "scripts/requirements-${environment#--}.txt"
  echo "install_deps: Python environment for ${environment#--} in .venv"
fi
