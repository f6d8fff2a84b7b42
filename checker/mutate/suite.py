"""The places in which the mutants of the bundled profiles are judged, in the order in which they are tried.

A mutant is one change of the spec. It is tried in each place that has what it changes, until some claim notices it:
what a loop without a result queue never does, or a flush that is never refused, is noticed elsewhere. The repaired
designs come first, since a property that is refuted anyway notices little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spec.facts import Configuration
from spec.profile import Profile, load_profile

_REPAIRED = (
    "reap-while-paused",
    "deferred-flush-ignores-waiting",
    "epoch-in-storage-key",
    "stamp-version-on-success",
    "pause-stops-clocks",
)
_BASE = "sglang-0.5.23"


@dataclass(frozen=True)
class Place:
    """One configuration of one profile."""

    profile: Profile
    configuration: Configuration

    @property
    def name(self) -> str:
        """As people read it."""
        c = self.configuration
        remedies = "".join(f" +{name}" for name in self.profile.applied)
        return f"{self.profile.name}{remedies}: {c.loop} {c.mode} {c.storage}"


def _place(profile: str, where: str, remedies: Sequence[str] = ()) -> Place:
    loaded = load_profile(profile).with_remedies(remedies)
    loop, mode, storage = where.split()
    matrix = loaded.configuration
    return Place(loaded, Configuration(loop, mode, storage, matrix.write_policy, matrix.host_mode, matrix.ranks))


def suite() -> list[Place]:
    """All: each bundled profile, each of its ledgers, loops with and without a result queue, each pause mode."""
    flag = f"{_BASE}-no-flag"
    return [
        _place(_BASE, "normal retract file", _REPAIRED),
        _place(_BASE, "overlap in_place file", _REPAIRED),
        _place(_BASE, "normal abort file", _REPAIRED),
        _place(_BASE, "normal retract file"),
        _place(_BASE, "overlap retract none", (*_REPAIRED, "flush-waits")),
        _place(_BASE, "overlap abort file"),
        _place("rejected-retrying-reap", "normal retract file"),
        _place(flag, "pp retract file"),
        _place(flag, "pp retract file", ("pp-honours-pause", *_REPAIRED)),
        _place(f"{_BASE}-limits", "normal retract none", ("retract-keeps-admitted",)),
        _place(f"{_BASE}-limits", "overlap retract none"),
        _place(f"{_BASE}-grammar", "normal retract none", ("grammar-while-paused",)),
        _place(f"{_BASE}-prefill", "prefill-overlap retract none", ("pd-drains-while-paused",)),
        _place(f"{_BASE}-decode", "decode-normal retract none", ("pd-drains-while-paused",)),
        _place(f"{_BASE}-buffer", "normal retract file", ("reap-while-paused", "flush-drops-staged")),
        _place(f"{_BASE}-buffer", "overlap abort file"),
        _place(f"{_BASE}-controls", "normal retract file", ("reap-while-paused", "controls-answer")),
        _place(f"{_BASE}-controls", "overlap in_place file"),
        _place(f"{_BASE}-caches", "normal retract none", ("reap-while-paused", "flush-clears-embeddings")),
        _place(f"{_BASE}-distributed", "normal retract none", ("reap-while-paused", "update-has-a-deadline")),
        _place(f"{_BASE}-distributed", "overlap in_place none", ("continue-needs-whole-weights",)),
        _place(f"{_BASE}-dllm", "normal retract none", ("retract-ends-staging",)),
        _place(f"{_BASE}-hisparse", "overlap retract none", ("staging-while-paused",)),
        _place(f"{_BASE}-lmcache", "normal retract none", ("lookups-end-while-paused",)),
        _place(f"{_BASE}-mlx", "mlx-overlap retract none", _REPAIRED),
        _place(f"{_BASE}-ranks", "overlap retract none", ("reap-while-paused", "copies-are-agreed")),
        _place(f"{_BASE}-ranks", "overlap in_place none", ("reap-while-paused", "quiesce-before-update")),
        _place(f"{_BASE}-ranks-3", "overlap retract none", ("reap-while-paused", "copies-are-agreed")),
        _place(f"{_BASE}-release", "overlap in_place file", ("reap-while-paused",)),
        _place(f"{_BASE}-offload", "decode-normal retract none", ("pd-drains-while-paused",)),
    ]
