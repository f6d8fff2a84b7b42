#!/bin/sh
# Every mutant of the spec, each where it acts; writes the committed figures. Most of an hour on two idle cores.
set -eu
cd "$(dirname "$0")/.."
figures=tests/mutate/figures/suite.txt
# Exit code 1: there are survivors, and they are listed.
timeout 5400 .venv/bin/checker mutate --suite >"$figures.new" || [ $? = 1 ]
mv "$figures.new" "$figures"
