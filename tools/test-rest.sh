#!/usr/bin/env bash
# The second process of test.sh: what drives no engine, and then the files LATE. Ends with the worse exit code.
set -uo pipefail
.venv/bin/python -m pytest -m "not engine" "$@"
rest=$?
# shellcheck disable=SC2086 - several words are meant
.venv/bin/python -m pytest -m engine $LATE "$@"
late=$?
exit $((rest > late ? rest : late))
