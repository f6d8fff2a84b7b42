"""What the plugin reads of the engines' status files, and how it judges that."""

import json
import subprocess
import sys

import pytest

from checker.pytest_plugin.watch import Wanted, Watch
from spec.errors import UnknownNameError


def status_text(**different):
    plain = {"schema": 1, "pid": 5, "updated": 1, "engine": "e", "engine_version": "v", "series": {}, "violations": []}
    return json.dumps(plain | different)


def test_a_status_file_that_is_none_is_passed_over(tmp_path):
    (tmp_path / "half.json").write_text('{"schema": 1,', encoding="utf-8")
    (tmp_path / "other.json").write_text(status_text(schema=2), encoding="utf-8")
    assert Watch(tmp_path).read() == {}
    assert Watch(tmp_path / "missing").read() == {}


def test_a_process_that_lives_and_writes_nothing_is_silent_and_one_that_is_gone_is_not(tmp_path):
    sleeping = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        (tmp_path / "here.json").write_text(status_text(pid=sleeping.pid), encoding="utf-8")
        assert [status.pid for status in Watch(tmp_path).settled(0.1)] == [sleeping.pid]
    finally:
        sleeping.kill()
    # Not waited for yet: a zombie makes no passes.
    while Watch(tmp_path).settled(0.1):
        pass
    sleeping.wait()
    assert Watch(tmp_path).settled(0.1) == []


def test_a_silent_engine_is_not_one_that_kept_the_protocol(tmp_path):
    text = (
        '{"schema": 1, "pid": 5, "updated": 9e9, "engine": "e", "engine_version": "v", "series": {}, "violations": []}'
    )
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    watch = Watch(tmp_path)
    (status,) = watch.read().values()
    assert watch.verdict(Wanted(), [status]) == (
        "quiesce: cannot tell: e v (process 5) has written no status for 10 s: it makes no passes"
    )
    assert watch.verdict(Wanted()) == ""


def test_a_property_that_is_not_watched_cannot_be_demanded():
    with pytest.raises(UnknownNameError, match="unknown watched property 'engine-survives'"):
        Wanted(properties=("engine-survives",))
