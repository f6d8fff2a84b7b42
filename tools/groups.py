"""Prints the dependency groups of pyproject.toml, a requirement a line, for a pip too old to know `--group`."""

import sys
import tomllib
from pathlib import Path

groups = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
sys.stdout.write("".join(f"{requirement}\n" for group in groups.values() for requirement in group))
