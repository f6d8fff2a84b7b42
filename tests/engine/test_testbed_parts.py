"""The testbed's own parts, without an engine."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
import torch

from engine_hooks.sglang.testbed import control, copies, launch, server, streams
from engine_hooks.sglang.testbed.control import Control, Gate, Kind, RankGates, RankId, Switch
from engine_hooks.sglang.testbed.server import LaunchError, free_port

ROOT = Path(__file__).parents[2]
STANDINS = ("sgl_kernel", "torchvision")


@pytest.fixture
def gate_and_switch(tmp_path: Path) -> tuple[Gate, Switch]:
    return RankGates(tmp_path, RankId())[Kind.D2H], Control(tmp_path).rank().d2h


def pass_through(gate: Gate) -> threading.Thread:
    number = gate.submit()

    def body() -> None:
        gate.enter(number)
        gate.leave()

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def test_nothing_is_held_at_first(gate_and_switch: tuple[Gate, Switch]) -> None:
    gate, switch = gate_and_switch
    pass_through(gate).join(5)
    assert (switch.submitted, switch.started, switch.done, switch.in_flight) == (1, 1, 1, 0)


def test_held_operations_wait_step_and_go(gate_and_switch: tuple[Gate, Switch]) -> None:
    gate, switch = gate_and_switch
    switch.hold()
    threads = [pass_through(gate) for _ in range(3)]
    switch.wait_in_flight(3)
    assert switch.started == 0
    switch.step()
    switch.wait(lambda s: s.done == 1)
    assert switch.in_flight == 2
    switch.release()
    for thread in threads:
        thread.join(5)
    assert switch.done == 3


def test_the_next_operations_fail_and_no_more(gate_and_switch: tuple[Gate, Switch]) -> None:
    gate, switch = gate_and_switch
    switch.fail_next(2)
    assert [gate.fails(gate.submit()) for _ in range(3)] == [True, True, False]
    switch.fail_next(1, raises=True)
    with pytest.raises(control.InjectedFailureError, match="d2h operation 3"):
        gate.fails(gate.submit())
    assert switch.failed == 3


def test_an_operation_that_is_to_fail_is_refused_or_raises(gate_and_switch: tuple[Gate, Switch]) -> None:
    gate, switch = gate_and_switch
    switch.fail_next(2)
    assert gate.run(lambda: "done", lambda: "refused") == "refused"
    with pytest.raises(control.InjectedFailureError, match="d2h operation 1"):
        gate.run(lambda: "done")
    assert gate.run(lambda: "done") == "done"
    with pytest.raises(ZeroDivisionError):
        gate.run(lambda: 1 / 0)
    assert (switch.failed, switch.done, switch.in_flight) == (2, 2, 0)


def test_restore_ends_holding_delaying_and_failing(gate_and_switch: tuple[Gate, Switch]) -> None:
    gate, switch = gate_and_switch
    switch.hold()
    switch.delay(3600)
    switch.fail_next(5)
    switch.restore()
    assert not gate.fails(gate.submit())
    pass_through(gate).join(5)
    assert switch.done == 1


def test_a_wait_that_ends_in_vain_shows_the_counters(gate_and_switch: tuple[Gate, Switch]) -> None:
    _, switch = gate_and_switch
    with pytest.raises(TimeoutError, match=r"dp0-pp0-tp0 d2h: submitted=0 .* within 0.01 s"):
        switch.wait_in_flight(seconds=0.01)


def test_ranks_and_kinds_have_their_own_switches(tmp_path: Path) -> None:
    board = Control(tmp_path)
    board.rank(tp=1).h2d.hold()
    held = RankGates(tmp_path, RankId(tp=1))
    for gates, kind in ((held, Kind.D2H), (RankGates(tmp_path, RankId()), Kind.H2D)):
        pass_through(gates[kind]).join(5)
    assert (board.rank(tp=1).d2h.done, board.rank().h2d.done) == (1, 1)
    blocked = pass_through(held[Kind.H2D])
    assert board.rank(tp=1).h2d.in_flight == 1
    board.rank(tp=1).restore()
    blocked.join(5)
    board.rank(tp=1).wait_idle(5)


def test_the_switchboard_works_across_processes(tmp_path: Path) -> None:
    switch = Control(tmp_path).rank().storage_read
    switch.hold()
    program = (
        "import sys; from pathlib import Path\n"
        "from engine_hooks.sglang.testbed.control import Kind, RankGates, RankId\n"
        "gates = RankGates(Path(sys.argv[1]), RankId()); gates.report_installed()\n"
        "gate = gates[Kind.STORAGE_READ]; number = gate.submit(); gate.enter(number); gate.leave()\n"
    )
    engine = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    switch.wait_in_flight()
    assert engine.poll() is None
    assert Control(tmp_path).rank().installed
    assert Control(tmp_path).installed_ranks() == 1
    switch.release()
    assert engine.wait(10) == 0
    assert switch.done == 1


def test_a_synchronous_stream_completes_events_at_once() -> None:
    event = streams.Event()
    assert event.query()
    event.record()
    assert event.query()


def test_a_lane_runs_in_order_and_completes_events_when_it_reaches_them() -> None:
    lane, order, released = streams.Stream(), [], threading.Event()
    lane.make_lane("test")
    event = streams.Event(enable_timing=True)
    with streams.StreamContext(lane):
        assert streams.current_stream() is lane
        lane.enqueue(released.wait)
        lane.enqueue(lambda: order.append("copy"))
        event.record()
    assert streams.current_stream() is not lane
    assert not event.query()
    assert not order
    released.set()
    event.synchronize()
    assert order == ["copy"]


def test_one_lane_waits_for_another() -> None:
    first, second, released = streams.Stream(), streams.Stream(), threading.Event()
    first.make_lane("first")
    second.make_lane("second")
    first.enqueue(released.wait)
    second.wait_stream(first)
    after = second.record_event()
    assert not after.query()
    released.set()
    after.synchronize()


LAYERS, PAGE, PAGES, SHAPE = 2, 4, 6, (2, 3)
DEVICE_ROWS = torch.cat([torch.arange(8, 12), torch.arange(4)])
HOST_ROWS = torch.cat([torch.arange(20, 24), torch.arange(4, 8)])


def device_pool() -> list[torch.Tensor]:
    """K of each layer, then V of each layer."""
    return [torch.rand(PAGE * PAGES, *SHAPE) for _ in range(2 * LAYERS)]


def forget(device: list[torch.Tensor]) -> None:
    for buffer in device:
        buffer[DEVICE_ROWS] = 0


def test_rows_go_to_the_host_and_back() -> None:
    device = device_pool()
    kept = [buffer.clone() for buffer in device]
    host = [torch.zeros_like(buffer) for buffer in device]
    copies.transfer_kv_direct(device, host, DEVICE_ROWS, HOST_ROWS, PAGE)
    forget(device)
    assert not all(map(torch.equal, device, kept))
    copies.transfer_kv_direct(host, device, HOST_ROWS, DEVICE_ROWS, PAGE)
    assert all(map(torch.equal, device, kept))


def test_page_first_pages_go_to_the_host_and_back() -> None:
    device = device_pool()
    kept = [buffer.clone() for buffer in device]
    host = [torch.zeros(PAGES, LAYERS, PAGE, *SHAPE) for _ in range(2)]
    copies.transfer_kv_all_layer_direct_lf_pf(device, host, DEVICE_ROWS, HOST_ROWS, PAGE)
    forget(device)
    for layer in range(LAYERS):
        copies.transfer_kv_per_layer_direct_pf_lf(
            host, [device[layer], device[LAYERS + layer]], HOST_ROWS, DEVICE_ROWS, layer, PAGE
        )
    assert all(map(torch.equal, device, kept))


def test_a_copy_reads_its_source_when_it_runs() -> None:
    lane, released = streams.Stream(), threading.Event()
    lane.make_lane("late")
    source, target, rows = torch.zeros(4, 1), torch.zeros(4, 1), torch.arange(4)
    with streams.StreamContext(lane):
        lane.enqueue(released.wait)
        copies.transfer_kv_direct([source], [target], rows, rows, 4)
    source += 7
    released.set()
    lane.synchronize()
    assert target.tolist() == [[7.0]] * 4


def test_arguments_become_a_command() -> None:
    command = launch.server_command(Path("m"), {"tp_size": 2, "disable_cuda_graph": False, "enable_metrics": True})
    assert command[1:3] == ["-m", "sglang.launch_server"]
    assert command[command.index("--tp-size") + 1] == "2"
    assert "--enable-metrics" in command
    assert "--disable-cuda-graph" not in command


def outside_the_testbed() -> dict[str, str]:
    ours = ("PYTHONPATH", control.VARIABLE, "SGLANG_USE_CPU_ENGINE")
    return {name: value for name, value in os.environ.items() if name not in ours}


@pytest.mark.parametrize("package", STANDINS)
def test_a_real_package_is_never_shadowed(package: str, tmp_path: Path) -> None:
    real = tmp_path / "site-packages"
    (real / package).mkdir(parents=True)
    (real / package / "__init__.py").touch()
    absent = [Path(path) for path in launch.standin_paths([])]
    present = [Path(path) for path in launch.standin_paths([str(real)])]
    assert [path for path in absent if (path / package).is_dir()]
    assert not [path for path in present if (path / package).is_dir()]
    # What stands on the path already, because the testbed put it there, is not taken for the real one.
    assert launch.standin_paths([str(path) for path in absent]) == [str(path) for path in absent]


@pytest.mark.parametrize("package", STANDINS)
def test_without_the_testbed_no_standin_is_on_the_path(package: str) -> None:
    program = (
        "import importlib.util, sys\n"
        "from engine_hooks.sglang.testbed import plugin\n"
        "plugin.register()\n"
        f"spec = importlib.util.find_spec({package!r})\n"
        "assert spec is None or 'standins' not in (spec.origin or ''), spec\n"
        "assert not [path for path in sys.path if 'standins' in path], sys.path\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'sglang' not in sys.modules\n"
    )
    command = [sys.executable, "-c", program]
    subprocess.run(command, check=True, env=outside_the_testbed(), cwd=ROOT)


def test_sglang_finds_the_testbed_by_its_entry_point() -> None:
    (entry,) = importlib.metadata.entry_points(group="sglang.srt.plugins", name="quiesce_testbed")
    assert entry.value == "engine_hooks.sglang.testbed.plugin:register"
    assert callable(entry.load())


def test_the_wheel_holds_no_standin_at_its_top_level(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("quiesce-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"spec", "checker", "engine_hooks"}
    testbed = "engine_hooks/sglang/testbed"
    assert f"{testbed}/standins/kernels/sgl_kernel/__init__.py" in names
    assert f"{testbed}/standins/vision/torchvision/__init__.py" in names


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ('{"architectures": ["Qwen3ForCausalLM"]}', {"qwen3"}),
        ('{"architectures": ["LlamaForCausalLM"]}', None),
        (None, None),
    ],
)
def test_only_the_tiny_model_keeps_other_models_from_being_imported(
    tmp_path: Path, config: str | None, kept: set[str] | None
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    package = importlib.util.find_spec("sglang")
    assert package is not None
    (folder,) = package.submodule_search_locations or [""]
    every = {path.stem for path in (Path(folder) / "srt" / "models").glob("*.py")} - {"__init__"}
    variable = launch.other_models(tmp_path).get("SGLANG_DISABLED_MODEL_ARCHS")
    assert (None if variable is None else every - set(variable.split(","))) == kept


def test_an_engine_gets_a_port_that_no_outgoing_connection_takes() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert 1024 <= free_port() < lowest


def test_no_port_to_give_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        port = taken.getsockname()[1]
        monkeypatch.setattr(server, "_PORTS", [port] * server._PORT_TRIES)
        with pytest.raises(LaunchError, match="none is free"):
            free_port()
