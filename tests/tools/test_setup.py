"""tools/setup.sh: which interpreter it takes, what it asks Debian for. Programs are stand-ins: nothing is installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BORROWED = ("bash", "dirname", "env", "grep", "mkdir", "chmod", "cp", "sort", "touch", "xargs")
# `-m venv` makes an environment of stand-ins. Code runs on this test's own interpreter, which says that it is another
# version below another prefix. What has a file in the folder `lacks` fails.
PYTHON = """#!{bash}
echo "{name} $*" >> "{log}"
code() {{ "{real}" "{stand_in}" {name} {minor} {prefix} "$@"; }}
case "$1 $2" in
"-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
"-m pip") [ -e .venv/bin/python ] ;;
"-c import ensurepip"*) [ ! -e "{lacks}/venv" ] ;;
"-c "*) code <<< "$2" ;;
"- ") [ ! -e "{lacks}/dev" ] ;;
"- "*) shift; code "$@" ;;
tools/groups.py*) echo something ;;
esac
"""
STAND_IN = """
import collections, sys
name, minor, prefix = sys.argv[1:4]
del sys.argv[1:4]
Version = collections.namedtuple("Version", "major minor micro")
sys.executable, sys.version_info, sys.base_prefix = name, Version(3, int(minor), 0), prefix
exec(sys.stdin.read())
"""


class Machine:
    """A folder with a copy of the script, and a PATH of its own."""

    def __init__(self, root: Path):
        self.root, self.log, self.lacks = root, root / "log", root / "lacks"
        self.programs = root / "programs"
        for folder in (self.programs, self.lacks, root / "tools"):
            folder.mkdir()
        for name in BORROWED:
            found = shutil.which(name)
            assert found
            (self.programs / name).symlink_to(found)
        shutil.copy(ROOT / "tools" / "setup.sh", root / "tools")
        (root / "stand_in.py").write_text(STAND_IN, encoding="utf-8")
        self.program("id", "echo 0")
        for name in ("g++", "ninja", "promtool", "prometheus-alertmanager", "chromium", "zsh", "spin"):
            self.program(name, "")
        self.program("apt-get", f'echo "apt-get $*" >> "{self.log}"')

    def program(self, name, text):
        path = self.programs / name
        path.write_text(f"#!{shutil.which('bash')}\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def python(self, name, minor, prefix="/usr"):
        text = PYTHON.format(
            bash=shutil.which("bash"), name=name, log=self.log, real=sys.executable, lacks=self.lacks,
            stand_in=self.root / "stand_in.py", minor=minor, prefix=prefix,
        )  # fmt: skip
        (self.programs / name).write_text(text, encoding="utf-8")
        (self.programs / name).chmod(0o755)

    def setup(self, tier):
        return subprocess.run(
            [self.root / "tools" / "setup.sh", tier],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": str(self.programs), "HOME": str(self.root)},
            timeout=60,
        )

    def calls(self, word):
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        return [line for line in lines if word in line]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ({"python3": 11}, "python3"),
        ({"python3": 13, "python3.11": 11}, "python3"),
        ({"python3.11": 11}, "python3.11"),
        ({"python3.13": 13}, "python3.13"),
        ({"python3": 9, "python3.9": 9, "python3.12": 12}, "python3.12"),
        ({"python3.9": 9, "python3.14": 14, "python3.12": 12, "python3.100": 100}, "python3.12"),
    ],
)
def test_the_interpreter_that_is_taken(machine, there, taken):
    for name, minor in there.items():
        machine.python(name, minor)
    machine.program("python3.11-config", "exit 0")
    done = machine.setup("core")
    assert (done.returncode, done.stderr) == (0, "")
    assert machine.calls("-m venv") == [f"{taken} -m venv .venv"]
    assert machine.calls("apt-get") == []
    assert (machine.root / ".venv" / ".core").exists()


def test_a_shim_that_answers_for_no_interpreter_is_passed_over(machine):
    machine.program("python3", "exit 127")
    machine.program("python3.11", "exit 127")
    machine.python("python3.12", 12)
    assert machine.setup("core").returncode == 0
    assert machine.calls("-m venv") == ["python3.12 -m venv .venv"]


@pytest.mark.parametrize("there", [{}, {"python3": 9}, {"python3": 10, "python3.10": 10}])
def test_without_one_that_is_new_enough(machine, there):
    for name, minor in there.items():
        machine.python(name, minor)
    done = machine.setup("core")
    assert (done.returncode, done.stderr) == (2, "setup: Python 3.11 or newer is needed\n")
    assert not (machine.root / ".venv").exists()


@pytest.mark.parametrize(("part", "tier"), [("venv", "core"), ("dev", "engine")])
def test_what_debian_s_interpreter_lacks_is_fetched_for_its_version(machine, part, tier):
    machine.python("python3.13", 13)
    (machine.lacks / part).touch()
    assert machine.setup(tier).returncode == 0
    (fetched,) = machine.calls("apt-get install")
    assert f" python3.13-{part}" in f" {fetched}"
    assert "python3-dev" not in fetched


@pytest.mark.parametrize(("part", "tier"), [("venv", "core"), ("dev", "engine")])
def test_for_another_interpreter_debian_is_not_asked(machine, part, tier):
    machine.python("python3", 12, prefix="/opt/python")
    (machine.lacks / part).touch()
    done = machine.setup(tier)
    assert done.returncode == 2
    assert done.stderr == f"setup: python3 lacks what Debian calls {part}; install it there\n"
    assert machine.calls("apt-get install") == []


def test_another_interpreter_that_is_whole_needs_nothing_of_debian_s_python(machine):
    machine.python("python3", 12, prefix="/opt/python")
    done = machine.setup("engine")
    assert (done.returncode, done.stderr) == (0, "")
    assert "python" not in "".join(machine.calls("apt-get install"))


def test_the_tests_without_an_engine_set_up_none():
    # Under `make test` it would say which folder it enters.
    command = ["make", "--no-print-directory", "-n", "-B", "test-core"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == [
        "tools/setup.sh core",
        "tools/setup.sh tests",
        '.venv/bin/python -m pytest -m "not engine and not source" --ignore=tests/engine --ignore=tests/alerts',
    ]


def test_an_unknown_tier(machine):
    machine.python("python3", 11)
    done = machine.setup("everything")
    assert (done.returncode, done.stderr) == (2, "setup: unknown tier 'everything'; it is core, tests or engine\n")


@pytest.mark.parametrize(
    ("names", "has", "has_not"),
    [(["tests"], ["pytest", "hypothesis"], ["ruff", "mypy"]), ([], ["pytest", "hypothesis", "ruff", "mypy"], [])],
)
def test_groups(names, has, has_not):
    command = [sys.executable, "tools/groups.py", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found = [line.split("=")[0].split(">")[0] for line in done.stdout.splitlines()]
    assert set(has) <= set(found)
    assert not set(has_not) & set(found)
