#!/usr/bin/env bash
# What `checker extract` says of other versions of SGLang: each wheel is downloaded (about 30 MB), unpacked and read; none is
# installed, imported or run.
set -euo pipefail
python=${PYTHON:-.venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in "$@"; do
  "$python" -m pip download -q --no-deps --dest "$folder/$version.wheel" "sglang==$version" 2>/dev/null
  "$python" -m zipfile -e "$folder/$version.wheel"/*.whl "$folder/$version"
  echo "== sglang $version"
  code=0
  "$python" -m checker extract sglang --source "$folder/$version/sglang" >/dev/null 2>"$folder/said" || code=$?
  sed "s|, from .*||" "$folder/said"
  echo "exit code $code"
  echo "-- compared with the bundled sglang-0.5.23"
  "$python" -m checker diff sglang-0.5.23 "$folder/$version/sglang" --facts-only | sed "s|$folder/||" || true
done
