#!/usr/bin/env bash
# The founding case, first on SGLang 0.5.23 as it is, then with the remedy. A refutation is what it expects first.
set -uo pipefail
cd "$(dirname "$0")/.."
checker=.venv/bin/checker
profile=(--profile sglang-0.5.23)
founding=paused-flush-succeeds

say() { printf '\n== %s\n\n' "$*"; }
expect() { # exit code, what it means, command…
  local wanted=$1 meaning=$2 got
  shift 2
  "$@"
  got=$?
  if [ "$got" != "$wanted" ]; then
    printf '\ndemo: expected exit code %s (%s), got %s: %s\n' "$wanted" "$meaning" "$got" "$*" >&2
    exit 1
  fi
}

say "SGLang 0.5.23 as it is: every property, every configuration"
expect 1 refuted $checker verify "${profile[@]}"
say "The founding case: paused, a flush can never succeed"
expect 1 refuted $checker explain $founding "${profile[@]}"
say "With the remedy reap-while-paused"
expect 1 "other properties stay refuted" $checker verify "${profile[@]}" --remedy reap-while-paused
say "The founding case with the remedy"
expect 0 proved $checker explain $founding "${profile[@]}" --remedy reap-while-paused
say "As expected: $founding is refuted on sglang-0.5.23 and proved with reap-while-paused"
echo "next: source .venv/bin/activate, then docs/tutorial/founding-case.md"
