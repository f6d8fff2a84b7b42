#!/usr/bin/env bash
# Every test, in two processes: one drives the engines, one after the other, and mostly waits for them; the other does
# all the rest meanwhile, and then LATE, so that both end at about the same time. Prints what pytest prints, of the
# second when it has ended. Ends with the worse exit code.
set -uo pipefail
cd "$(dirname "$0")/.."
# Tests of engines that the second process runs.
export LATE="tests/engine/test_pytest_plugin.py tests/engine/test_pipelines.py tests/engine/test_reproduce_elsewhere.py"
rest=$(mktemp)
# What is started in a background ignores SIGINT, which some tests send; and the engines go first.
env --default-signal=INT nice -n 5 tools/test-rest.sh "$@" >"$rest" 2>&1 &
other=$!
trap 'pkill -INT -P $other 2>/dev/null' INT TERM
# shellcheck disable=SC2086 - several words are meant
env --default-signal=INT .venv/bin/python -m pytest -m engine $(printf -- "--ignore=%s " $LATE) "$@"
engines=$?
wait $other
others=$?
cat "$rest"
rm -f "$rest"
exit $((engines > others ? engines : others))
