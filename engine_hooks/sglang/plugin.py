"""The entry point that SGLang calls in each process it starts, and what a scheduler's start sets up."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

from engine_hooks.compiled import CompiledProfile, compiled_profile, known_versions
from engine_hooks.errors import LostSightError, SettingsError
from engine_hooks.metrics import PrometheusSink, Vocabulary
from engine_hooks.monitor import Monitor
from engine_hooks.monitor_board import Board, Sink
from engine_hooks.monitor_options import MonitorOptions
from engine_hooks.monitor_overdue import PATIENCE_SECONDS
from engine_hooks.monitor_text import HOOKS, NEEDS, blocker_names
from engine_hooks.observation import Rank
from engine_hooks.recorder import FlightRecorder, Identity
from engine_hooks.recorder_writer import RecordWriter
from engine_hooks.settings import CensusOptions, Mode, Settings
from engine_hooks.sglang import tokenizer
from engine_hooks.sglang.probes import Probes
from engine_hooks.sglang.probes_session import Session, Sources
from engine_hooks.sglang.probes_state import (
    EngineKind,
    StateReader,
    lookups_issued,
    loop_name,
    storage_kind,
    version_reader,
)
from engine_hooks.sglang.probes_targets import ON_INSTANCE, START, TARGETS, missing_targets
from engine_hooks.sglang.probes_trace import TRACE_TARGETS, Traced, traced
from engine_hooks.sglang.remedies import all_ranks_agree, bind_remedies, make_remedies, register_remedies, unhooked
from engine_hooks.sglang.repairs.base import Remedy
from engine_hooks.status import StatusFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_hooks.sglang.census_probe import CensusProbe
    from engine_hooks.sglang.lineage_probe import LineageHooks

logger = logging.getLogger("quiesce")

_T = TypeVar("_T")

# Objects of the engine; its modules are imported only in a scheduler's process.
Engine = Any

_SCHEDULER_MODULE = "sglang.srt.managers.scheduler"


def register() -> None:
    """Called by SGLang in each of its processes, before it builds anything.

    Hooks a scheduler only where one will run. Where the launcher runs is not known yet: its hook waits for it.
    """
    register_launcher(os.environ)
    if _SCHEDULER_MODULE not in sys.modules or multiprocessing.parent_process() is None:
        return
    register_hooks(os.environ)


def register_launcher(environ: Mapping[str, str]) -> None:
    """Register what shows the pause of the tokenizer's process, once SGLang builds it with metrics on."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415 - imported only where an engine runs

    try:
        if Settings.from_environment(environ).mode is Mode.OFF:
            return
    except SettingsError:  # the schedulers say it
        return
    HookRegistry.register(tokenizer.LAUNCHED, tokenizer.TokenizerProbe().launched, HookType.AFTER)


def register_hooks(environ: Mapping[str, str]) -> None:
    """Register the hooks of this process; SGLang applies them. With QUIESCE=off, or a value that is no mode: none."""
    from sglang import __version__  # noqa: PLC0415 - imported only where an engine runs
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415 - imported only where an engine runs

    try:
        settings = Settings.from_environment(environ)
    except SettingsError as error:
        logger.error("quiesce: %s; nothing is activated", error)  # noqa: TRY400 - one line says it all
        return
    if settings.mode is Mode.OFF:
        return
    profile = compiled_profile("sglang", __version__)
    chosen = make_remedies(_chosen_remedies(settings, profile))
    register_remedies(chosen)  # first, so that the probes see what a remedy made of a call
    missing = missing_targets() if profile is not None else {}
    lineage = _lineage_hooks(settings) if profile is not None else None
    starter = _Starter(settings, profile, chosen, __version__, missing, _census_options(settings), lineage)
    probes = Probes(starter.start)
    targets = [START, *(t for t in TARGETS if t.path not in starter.missing)] if profile is not None else [START]
    if profile is not None and settings.trace_dir is not None:
        targets += TRACE_TARGETS
    for target in targets:
        HookRegistry.register(target.path, getattr(probes, target.method), HookType[target.kind])
    if lineage is not None:
        for target in lineage.targets:  # last, so that the monitor has seen what theirs follow
            HookRegistry.register(target.path, getattr(lineage, target.method), HookType[target.kind])


def _chosen_remedies(settings: Settings, profile: CompiledProfile | None) -> tuple[str, ...]:
    """The remedies asked for; none where one of them is unknown, which must not end the watching too."""
    if profile is None:
        return ()
    try:
        return settings.chosen_remedies(profile.remedies)
    except SettingsError as error:
        logger.error("quiesce: %s; no remedy is activated", error)  # noqa: TRY400 - one line says it all
        return ()


def _census_options(settings: Settings) -> CensusOptions:
    """When pages are counted; never where the setting cannot be read, which must not end the watching too."""
    try:
        return settings.census_options()
    except SettingsError as error:
        logger.error("quiesce: %s; no census is taken", error)  # noqa: TRY400 - one line says it all
        return CensusOptions(on=False)


def _patience(settings: Settings) -> int:
    """How long what must come may take; the default where the setting cannot be read."""
    try:
        return settings.patience_seconds()
    except SettingsError as error:
        logger.error("quiesce: %s; it is %d", error, PATIENCE_SECONDS)  # noqa: TRY400 - one line says it all
        return PATIENCE_SECONDS


def _lineage_hooks(settings: Settings) -> LineageHooks | None:
    """The hooks of the lineage, where it is asked for; none where the setting cannot be read."""
    try:
        options = settings.lineage_options()
    except SettingsError as error:
        logger.error("quiesce: %s; no lineage is followed", error)  # noqa: TRY400 - one line says it all
        return None
    if not options.on:
        return None
    from engine_hooks.sglang.lineage_probe import LineageHooks  # noqa: PLC0415 - torch, which a launcher must not pay for

    return LineageHooks(options.keys)


def _or_lost(monitor: Monitor, hook: str, build: Callable[[], _T]) -> _T | None:
    """What `build` returns; where the engine's attributes are not those it expects: None, and the hook is lost."""
    try:
        return build()
    except Exception as error:  # noqa: BLE001 - a probe must never raise into the engine
        monitor.lost(hook, f"{type(error).__name__}: {error}")
        return None


def _own_version() -> str:
    try:
        return version("quiesce")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"


@dataclass(frozen=True)
class _Starter:
    """What a scheduler's start needs to know."""

    settings: Settings
    profile: CompiledProfile | None
    chosen: Mapping[str, Remedy]
    """The remedies asked for, hooked and switched off."""
    engine_version: str
    missing: Mapping[str, str]
    census: CensusOptions = field(default_factory=CensusOptions)
    lineage: LineageHooks | None = None

    def start(self, scheduler: Engine) -> Session | None:
        """Build the monitor and the session for a scheduler that has just been constructed.

        Returns None where nothing can be watched; raises LostSightError then in `enforce`.
        """
        from sglang.srt.runtime_context import get_memory, get_parallel  # noqa: PLC0415 - imported only where an engine runs

        parallel = get_parallel()
        rank = Rank(parallel.tp_rank, parallel.pp_rank, parallel.dp_rank or 0)
        board = Board(self._sinks(rank))
        if self.profile is None:
            self._unknown_version(board)
            return None
        remedies = self._remedies(scheduler, board, parallel)
        loop = loop_name(scheduler, parallel.pp_size)
        enforce = self.settings.mode is Mode.ENFORCE
        options = MonitorOptions(rank, loop, tuple(remedies), enforce, self._unasked, _patience(self.settings))
        monitor = Monitor(self.profile, board, options)
        self._record(monitor)
        for hook, reason in self._not_applied().items():
            monitor.lost(hook, reason)
        memory = get_memory()
        kind = EngineKind(pp_size=parallel.pp_size, buffer_only=memory.hicache_host_memory_mode == "buffer_only")
        policy, host_mode = memory.hicache_write_policy, memory.hicache_host_memory_mode
        sources = Sources(
            _or_lost(monitor, "state", lambda: StateReader(scheduler, rank, loop, kind)),
            lookups=_or_lost(monitor, "lookups", lambda: lookups_issued(scheduler)) or (lambda: 0),
            storage=lambda: storage_kind(scheduler, policy, host_mode),
            remedies=tuple(remedies.values()),
            version=_or_lost(monitor, "version", version_reader),
            census=_or_lost(monitor, "census", lambda: self._census(scheduler, parallel.pp_size, monitor)),
        )
        session = Session(scheduler, monitor, sources)
        lineage = self.lineage
        if lineage is not None:
            _or_lost(monitor, "lineage", lambda: lineage.begin(session, parallel.pp_size))
        if self.settings.trace_dir is not None:
            of = Traced(scheduler, self._identity(monitor.options), sources.storage(), sources.lookups, parallel)
            session.trace = traced(self.settings.trace_dir, of, sources.reader, monitor)
        board.tick(force=True)
        logger.info("quiesce: watching %s, loop %s, remedies: %s", rank, loop, ", ".join(remedies) or "none")
        return session

    def _record(self, monitor: Monitor) -> None:
        """Keep a flight recorder where one is asked for; without it nothing of it runs."""
        folder, options = self.settings.record_dir, monitor.options
        if folder is None:
            return
        try:
            writer = RecordWriter(folder, str(options.rank))
            monitor.record_with(FlightRecorder(self._identity(options), writer))
        except RuntimeError as error:  # no thread can be started
            logger.warning("quiesce: no flight recorder: %s", error)

    def _identity(self, options: MonitorOptions) -> Identity:
        return Identity(
            engine="sglang",
            engine_version=self.engine_version,
            version=_own_version(),
            profile=self.profile.profile if self.profile is not None else "",
            spec_digest=self.profile.spec_digest if self.profile is not None else "",
            rank=options.rank,
            loop=options.loop,
            remedies=options.remedies,
        )

    @property
    def _unasked(self) -> frozenset[str]:
        asked = {"census": self.census.on, "lineage": self.lineage is not None}
        return frozenset(hook for hook, wanted in asked.items() if not wanted)

    def _census(self, scheduler: Engine, pp_size: int, monitor: Monitor) -> CensusProbe | None:
        if not self.census.on:
            return None
        from engine_hooks.sglang.census_probe import bind  # noqa: PLC0415 - torch, which a launcher must not pay for

        return bind(scheduler, pp_size, self.census.passes, monitor.pages_counted)

    def _sinks(self, rank: Rank) -> list[Sink]:
        info = (
            self.profile.spec_digest if self.profile is not None else "none", _own_version(), "sglang",
            self.engine_version,
        )  # fmt: skip
        sinks: list[Sink] = []
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            try:
                sinks.append(PrometheusSink(self._vocabulary(info), rank))
            except (ImportError, OSError) as error:
                logger.warning("quiesce: no metrics: %s", error)
        if self.settings.status_dir is not None:
            name = f"scheduler-{str(rank).replace(' ', '-')}-{os.getpid()}"
            identity = {"process": "scheduler", "rank": rank._asdict(), "mode": self.settings.mode.value}
            keys = ("spec_digest", "version", "engine", "engine_version")
            try:
                sinks.append(StatusFile(self.settings.status_dir, name, identity | dict(zip(keys, info, strict=True))))
            except (OSError, RuntimeError) as error:  # no folder, or no thread can be started
                logger.warning("quiesce: no status file: %s", error)
        return sinks

    def _vocabulary(self, info: tuple[str, ...]) -> Vocabulary:
        profile = self.profile
        hooks = tuple(hook for hook in HOOKS if hook not in self._unasked)
        if profile is None:
            return Vocabulary(properties=tuple(NEEDS), hooks=hooks, info=info)
        return Vocabulary(
            properties=tuple(NEEDS),
            ledgers=tuple(profile.ledgers),
            blockers=blocker_names(profile),
            hooks=hooks,
            remedies=tuple(profile.remedies),
            info=info,
        )

    def _unknown_version(self, board: Board) -> None:
        for hook in HOOKS:
            board.show("hook_applied", hook, value=0)
        board.tick(force=True)
        known = ", ".join(known_versions("sglang"))
        message = (
            f"no profile of sglang {self.engine_version}: nothing is watched and no remedy is active; "
            f"there is one of: {known}"
        )
        logger.warning("quiesce: %s", message)
        if self.settings.mode is Mode.ENFORCE:
            raise LostSightError(message)

    def _not_applied(self) -> dict[str, str]:
        """Hook to reason, for each that SGLang did not apply; it only logs such failures itself."""
        from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: PLC0415 - imported only where an engine runs

        applied = HookRegistry._patched  # noqa: SLF001 - the engine has no public name for it
        gone = [target for target in TARGETS if target.path not in applied]
        gone += [target for target in ON_INSTANCE if target.path in self.missing]
        return {t.hook: f"{t.path}: {self.missing.get(t.path, 'not applied by the engine')}" for t in gone}

    def _remedies(self, scheduler: Engine, board: Board, parallel: Engine) -> dict[str, Remedy]:
        """The remedies that are active on this rank: chosen, bound, hooked, and the same on all ranks."""
        profile = self.profile
        bound = bind_remedies(self.chosen, scheduler, unhooked(self.chosen))
        if bound and "paused_pass" in self._not_applied():
            logger.error("quiesce: no hook on paused passes; remedies are off: %s", ", ".join(bound))
            bound = {}
        world = parallel.tp_size * parallel.pp_size
        if world > 1:
            from torch.distributed import distributed_c10d as c10d  # noqa: PLC0415 - imported only where an engine runs

            digest = profile.spec_digest if profile is not None else ""
            card = {"version": _own_version(), "spec_digest": digest, "remedies": sorted(bound)}
            store = c10d._get_default_store()  # noqa: SLF001 - the engine has no public name for it
            if not all_ranks_agree(store, c10d.get_rank(), c10d.get_world_size(), card):
                logger.error("quiesce: the ranks differ in version, spec or remedies; remedies are off: %s", card)
                bound = {}
        for remedy in bound.values():
            remedy.switch_on(scheduler)
        for name in profile.remedies if profile is not None else ():
            board.show("remedy_active", name, value=int(name in bound))
        return dict(sorted(bound.items()))
