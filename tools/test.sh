#!/usr/bin/env bash
# Every test, in three processes, since most tests of engines wait for them and few compute: one drives the engines, one
# after the other; one does all that drives none; and one drives those engines that its tests step or hold (STEPPED), for
# which it does not matter how slow the machine is meanwhile. Prints what pytest prints, of the others when they have
# ended. Ends with the worst exit code.
set -uo pipefail
cd "$(dirname "$0")/.."
STEPPED="tests/engine/test_reproduce.py tests/engine/test_reproduce_elsewhere.py tests/engine/test_pipelines.py
tests/engine/test_pytest_plugin.py tests/engine/test_disaggregation.py"
folder=$(mktemp -d)
# What is started in a background ignores SIGINT, which some tests send; and the engines go first.
beside() {
    env --default-signal=INT nice -n 5 .venv/bin/python -m pytest "${@:2}" >"$folder/$1" 2>&1 &
}
beside rest -m "not engine" "$@"
rest=$!
# shellcheck disable=SC2086 - several words are meant
beside stepped -m engine $STEPPED "$@"
stepped=$!
trap 'kill -INT $rest $stepped 2>/dev/null' INT TERM
# shellcheck disable=SC2086 - as above
env --default-signal=INT .venv/bin/python -m pytest -m engine $(printf -- "--ignore=%s " $STEPPED) "$@"
worst=$?
for process in $stepped $rest; do
    wait "$process"
    code=$?
    worst=$((code > worst ? code : worst))
done
cat "$folder/stepped" "$folder/rest"
rm -rf "$folder"
exit $worst
