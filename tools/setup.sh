#!/usr/bin/env bash
# Sets up .venv for one tier: `core` is what the proof needs, `tests` adds what tests without an engine need, `engine`
# adds SGLang's lean CPU set and the tools.
# Only what is missing is installed, so that a repeated call is cheap.
set -euo pipefail
cd "$(dirname "$0")/.."
tier=${1:?"usage: tools/setup.sh core|tests|engine"}
venv=.venv
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

fetch_debian() { # packages
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "setup: please install: $*" >&2; exit 2; }
  # Debian starts the services of what it installs; the tests start and stop their own, on the loopback.
  local policy=/usr/sbin/policy-rc.d fresh=()
  [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy && fresh=("$policy"); }
  for service in prometheus prometheus-alertmanager; do
    [ -e "/lib/systemd/system/$service.service" ] || fresh+=("$service")
  done
  local result=0
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null || result=$?
  for one in "${fresh[@]}"; do
    if [ "$one" = $policy ]; then rm -f $policy; else systemctl disable -q "$one" 2>/dev/null || true; fi
  done
  return $result
}

# Not every system has a plain python3, or one that is new enough. Of the others the oldest: it has most wheels.
find_python() {
  local name
  for name in python3 $(compgen -c python3. | grep -xE 'python3\.[0-9]+' | sort -t. -k2 -nu); do
    "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$name"; return; }
  done
  echo "setup: Python 3.11 or newer is needed" >&2
  exit 2
}

# Debian's packages are parts of Debian's interpreters; any other brings its own, or cannot be used here.
debian_package() { # interpreter, part
  "$1" - "$2" <<'P'
import sys
if sys.base_prefix == "/usr":
    print(f"python3.{sys.version_info.minor}-{sys.argv[1]}")
else:
    print(f"setup: {sys.executable} lacks what Debian calls {sys.argv[1]}; install it there", file=sys.stderr)
    sys.exit(2)
P
}

# An interrupted set-up may leave an interpreter without pip.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  python=$(find_python)
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package=$(debian_package "$python" venv)
    fetch_debian "$package"
  fi
  "$python" -m venv "$venv"
fi
# Not compiled: most modules of what is large are never imported, and those that are compile themselves once.
install() { "$venv/bin/python" -m pip install -q --no-compile "$@"; }

case $tier in
core)
  install -e .
  touch "$venv/.core"
  ;;
tests)
  install -e ".[certify,report,docs,pytest]"
  "$venv/bin/python" tools/groups.py tests | xargs "$venv/bin/python" -m pip install -q --no-compile
  touch "$venv/.tests"
  ;;
engine)
  # The file storage of HiCache compiles a hash with these on first use.
  need=()
  command -v g++ >/dev/null || need+=(g++)
  command -v ninja >/dev/null || need+=(ninja-build)
  [ -e /usr/include/openssl/sha.h ] || need+=(libssl-dev)
  # The alert rules are tested with the real programs, the runbooks by running their commands.
  command -v curl >/dev/null || need+=(curl)
  command -v promtool >/dev/null || need+=(prometheus)
  command -v prometheus-alertmanager >/dev/null || need+=(prometheus-alertmanager)
  # The report is opened in a real browser; playwright's own cannot be had here.
  command -v chromium >/dev/null || need+=(chromium)
  # Completion is tested in the shells themselves.
  command -v zsh >/dev/null || need+=(zsh)
  if ! "$venv/bin/python" - <<'P'; then
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))
P
    package=$(debian_package "$venv/bin/python" dev)
    need+=("$package")
  fi
  # The explicit-state peer of bench/; no test needs it.
  if ! command -v spin >/dev/null; then
    [ "$(id -u)" = 0 ] && need+=(spin gcc libc6-dev) || echo "setup: without spin, bench/peer.py has no peer" >&2
  fi
  [ ${#need[@]} = 0 ] || fetch_debian "${need[@]}"
  # 2.13.0 is the newest with a CPU build here; elsewhere its CUDA build, or SGLang's own pin, serves as well.
  "$venv/bin/python" -m pip show -q torch 2>/dev/null || install torch==2.13.0 || install torch==2.14.1
  install -e ".[engine,certify,alerts,report,docs,pytest]"
  install --no-deps sglang==0.5.23
  # The pip of Debian 12 does not know --group.
  "$venv/bin/python" tools/groups.py | xargs "$venv/bin/python" -m pip install -q --no-compile
  touch "$venv/.engine"
  ;;
*) echo "setup: unknown tier '$tier'; it is core, tests or engine" >&2; exit 2 ;;
esac
