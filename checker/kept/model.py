"""The file of kept finds: one for each bundled profile that has one, JSON, schema 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.resources import files

import msgspec

from spec.profile import Configuration, Profile, bundled_path

SCHEMA = 1


class KeptHelp(msgspec.Struct, frozen=True):
    """A helpful unit, and where it helps, as SMT-LIB."""

    unit: str
    where: str


class KeptProof(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parts of a proof. Lemmas are places in the table of terms of the configuration."""

    lemmas: Sequence[int]
    rank: Sequence[Sequence[tuple[int, str]]] = ()
    helpful: Sequence[KeptHelp] = ()
    recurrent: Sequence[tuple[str, KeptProof]] = ()


class KeptStuck(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stuck region inside the pending states: what else holds there, its disjuncts, what only help can change."""

    lemmas: Sequence[int]
    atoms: Sequence[str]
    flag: str | None = None


KeptStep = tuple[str, Mapping[str, int]]
"""An action and what the environment chooses in it."""


class KeptRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A counterexample."""

    steps: Sequence[KeptStep]
    loop_from: int | None = None
    ignored: Sequence[str] = ()
    stuck: KeptStuck | None = None


class KeptClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one claim was decided: by a proof or by a run."""

    key: str
    """Property, what the claim is about, and its number among those of the property."""
    method: str
    carried: bool = False
    """Whether it was carried over from the configuration before, which is cheaper than this."""
    proof: KeptProof | None = None
    pending: Sequence[KeptStep] | None = None
    """A run into a pending state: that the proof is not one about nothing."""
    run: KeptRun | None = None


class KeptConfiguration(msgspec.Struct, frozen=True):
    """Everything of one configuration."""

    loop: str
    configuration: Mapping[str, str | int]
    terms: Sequence[str]
    claims: Sequence[KeptClaim]


class Kept(msgspec.Struct, frozen=True, dict=True):
    """What is kept for one profile. `seed` is that of the search."""

    schema: int
    profile: str
    remedies: Sequence[str]
    solver: str
    seed: int
    configurations: Sequence[KeptConfiguration]

    def of(self, configuration: Configuration) -> KeptConfiguration | None:
        """What is kept of this configuration."""
        return self._places.get((configuration.loop, *configuration.as_dict().values()))

    @cached_property
    def _places(self) -> Mapping[tuple[str | int, ...], KeptConfiguration]:
        return {(c.loop, *c.configuration.values()): c for c in self.configurations}


def load_kept(profile: Profile, seed: int) -> Kept | None:
    """What was found with this seed; None where nothing is kept: for a file of the user's, first of all.

    One that was extracted has that of the bundled one: where their facts are the same, so is what was found; and all of
    it is checked.
    A file that cannot be read or is broken keeps nothing: what it saves is time.
    With remedies that have no file of their own it is that of the profile without them: most is the same in both.
    """
    if profile.path != bundled_path(profile.name) and not profile.extracted:
        return None
    folder = files("checker") / "kept"
    for name in (file_name(profile), f"{profile.name}.json"):
        if (folder / name).is_file():
            try:
                kept = msgspec.json.decode((folder / name).read_bytes(), type=Kept)
            except (OSError, msgspec.MsgspecError, RecursionError):
                return None
            return kept if kept.schema == SCHEMA and kept.seed == seed else None
    return None


def file_name(profile: Profile) -> str:
    """The file of a profile with the remedies that are applied to it."""
    return f"{'+'.join([profile.name, *sorted(profile.applied)])}.json"
