#!/bin/sh
# Every mutant of the spec of one configuration for each loop; writes the committed figures.
set -eu
cd "$(dirname "$0")/.."
for place in "normal retract file" "overlap retract file"; do
  set -- $place
  # Exit code 1: there are survivors, and they are listed.
  .venv/bin/checker mutate --profile sglang-0.5.23 --remedy all --loop "$1" --mode "$2" --storage "$3" \
    >"tests/mutate/figures/$1.txt" || [ $? = 1 ]
done
