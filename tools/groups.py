"""Prints dependency groups of pyproject.toml, those named or all, for a pip too old to know `--group`."""

import sys
import tomllib
from pathlib import Path

groups = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
wanted = sys.argv[1:] or groups
sys.stdout.write("".join(f"{requirement}\n" for name in wanted for requirement in groups[name]))
