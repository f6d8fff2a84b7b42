#!/usr/bin/env bash
# Every test, in two processes: one drives the engines, one after the other, and mostly waits for them; the other does
# all the rest meanwhile. Prints what pytest prints, of the second when it has ended. Ends with the worse exit code.
set -uo pipefail
cd "$(dirname "$0")/.."
rest=$(mktemp)
# What is started in a background ignores SIGINT, which some tests send; and the engines go first.
env --default-signal=INT nice -n 5 .venv/bin/python -m pytest -m "not engine" "$@" >"$rest" 2>&1 &
other=$!
trap 'kill -INT $other 2>/dev/null' INT TERM
env --default-signal=INT .venv/bin/python -m pytest -m engine "$@"
engines=$?
wait $other
others=$?
cat "$rest"
rm -f "$rest"
exit $((engines > others ? engines : others))
