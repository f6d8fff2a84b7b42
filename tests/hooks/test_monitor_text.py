"""Which function a violation names as the one that would have had to run."""

from __future__ import annotations

import pytest
from hooks_fakes import REAPER, Bench

from engine_hooks.monitor import MonitorOptions
from engine_hooks.observation import Observation


@pytest.mark.parametrize("remedies", [(), ("reap-while-paused",)])
def test_a_refused_update_names_a_function_as_missing_only_where_no_paused_pass_runs_it(
    remedies: tuple[str, ...],
) -> None:
    bench = Bench(MonitorOptions(loop="normal", remedies=remedies))
    bench.monitor.paused("retract", "file")
    bench.paused_pass(write_through_submitted=1)
    bench.monitor.update_answered("disk", "unflushed")
    told = f"write_through (1 submitted; {REAPER} {'retires it when it is done' if remedies else 'would have to run'})"
    assert told in bench.sink.violations[0].message


def test_after_a_pause_no_function_is_missing() -> None:
    bench = Bench(MonitorOptions(loop="normal"))
    bench.monitor.paused("retract", "file")
    bench.monitor.continued()
    bench.monitor.gate_answered("flush", Observation(write_through_submitted=1), open_=True)
    assert f"write_through (1 submitted; {REAPER} retires it when it is done)" in bench.sink.violations[0].message
