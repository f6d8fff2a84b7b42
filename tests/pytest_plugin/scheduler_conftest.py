"""Becomes the conftest of inner sessions: the real monitor and status file of one scheduler, fed by a test.

What stands in is the engine alone: the test says what a pass saw. A thread writes the status as often as passes would.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engine_hooks.compiled import compiled_profile
from engine_hooks.monitor import Monitor, MonitorOptions
from engine_hooks.monitor_board import Board
from engine_hooks.observation import Observation
from engine_hooks.status import StatusFile


class Scheduler:
    def __init__(self, folder):
        # An engine's files outlive its process; so this one's must be another than that of the tests.
        self._process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        identity = {"process": "scheduler", "engine": "sglang", "engine_version": "0.5.23", "pid": self._process.pid}
        self.status_dir = Path(folder)
        self._status = StatusFile(self.status_dir, f"scheduler-{self._process.pid}", identity)
        self.monitor = Monitor(compiled_profile("sglang", "0.5.23"), Board([self._status]), MonitorOptions())
        self.monitor.board.tick(force=True)
        # As of an engine that has come up.
        while not self._status.path.exists():
            time.sleep(0.005)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self):
        while not self._over.wait(0.02):
            self._status.flush()

    def stop(self):
        self._over.set()
        self._thread.join()
        self._status.close()
        self._process.communicate()

    def keep_the_protocol(self):
        self.monitor.paused("retract", "none")
        self.monitor.observe(Observation(sequence=1, loop="normal", step="paused", paused=True))
        self.monitor.flush_decided("immediate", "granted")
        self.monitor.continued()

    def be_stuck(self, sequence=7):
        """The founding case: paused, a write-through in flight, a flush refused."""
        self.monitor.paused("retract", "none")
        self.monitor.flush_decided("immediate", "refused")
        seen = Observation(sequence=sequence, loop="normal", step="paused", paused=True, write_through_submitted=1)
        self.monitor.observe(seen)

    def be_stuck_in_two_ledgers(self):
        self.monitor.paused("retract", "file")
        self.monitor.flush_decided("immediate", "refused")
        ledgers = {"write_through_submitted": 1, "prefetch_query": 2}
        self.monitor.observe(Observation(sequence=7, loop="normal", step="paused", paused=True, **ledgers))

    def get_unstuck(self):
        self.monitor.continued()


@pytest.fixture
def scheduler(request):
    """Reports where an engine would that inherits this environment; else into a folder of its own."""
    made = Scheduler(os.environ.get("QUIESCE_STATUS_DIR") or request.getfixturevalue("tmp_path"))
    yield made
    made.stop()
