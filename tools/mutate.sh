#!/bin/sh
# Every mutant of the spec of one configuration; writes the committed figures.
set -eu
cd "$(dirname "$0")/.."
# Exit code 1: there are survivors, and they are listed.
.venv/bin/checker mutate --profile sglang-0.5.23 --remedy all --loop normal --mode retract --storage file \
  >tests/mutate/figures/normal-retract-file.txt || [ $? = 1 ]
