"""What a test may do with `quiesce_engine`. test_pytest_plugin.py runs this file under the plugin."""

import pytest

from checker.pytest_plugin.engines import EngineOptions


def prompt(seed):
    return [(seed * (i + 1) + 3 * seed) % 500 + 3 for i in range(600)]


@pytest.fixture(scope="module")
def quiesce_engine_options():
    return EngineOptions(storage=True)


def pause_with_a_write_in_flight(engine, seed):
    engine.rank.d2h.hold()
    assert len(engine.generate(prompt(seed))) == 16
    engine.rank.d2h.wait_in_flight()
    engine.pause("retract")


def test_transfers_are_held_stepped_delayed_and_failed(quiesce_engine):
    engine, d2h = quiesce_engine, quiesce_engine.rank.d2h
    d2h.hold()
    started = d2h.started
    engine.generate(prompt(3))
    d2h.wait_in_flight(1)
    assert d2h.started == started
    assert not engine.flush().success
    d2h.step()
    d2h.wait(lambda switch: switch.started == started + 1)
    d2h.release()
    write = engine.rank.storage_write
    failed = write.failed
    write.fail_next()
    d2h.delay(0.1)
    engine.generate(prompt(5))
    write.wait(lambda switch: switch.failed == failed + 1)
    engine.settle()


def test_clean(quiesce_engine, quiesce_models, assert_protocol):
    engine = quiesce_engine
    with assert_protocol(engine):
        before = engine.generate(prompt(7))
        engine.settle()
        engine.pause("retract")
        assert engine.update_from_disk(quiesce_models.new).success
        assert engine.flush().success
        engine.continue_()
        # The storage still has what the old weights computed, which no flush drops (`no-stale-kv`).
        engine.settle()
        assert len(before) == 16


def test_provoked(quiesce_engine, assert_protocol):
    with assert_protocol(quiesce_engine):
        pause_with_a_write_in_flight(quiesce_engine, 11)
        assert not quiesce_engine.flush().success


@pytest.mark.quiesce
def test_marked_and_provoked(quiesce_engine):
    pause_with_a_write_in_flight(quiesce_engine, 13)
    assert not quiesce_engine.flush().success


@pytest.mark.quiesce
def test_marked_and_clean(quiesce_engine):
    quiesce_engine.settle()
    quiesce_engine.pause("in_place")
    quiesce_engine.continue_()
