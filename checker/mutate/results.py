"""What a mutation run says, as data: the JSON of `checker mutate --json`, schema 1. Extend it, do not change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

SCHEMA = 1
DEFINITION = "definition"
"""In the place of a property, where a mutant makes no spec at all: its definition is refused."""


class Outcome(msgspec.Struct, frozen=True):
    """One mutant. `how`, `property` and `place` say what killed it, and where.

    `property` may be `bookkeeping` or `reachability`: a claim about the spec itself (spec.soundness), or DEFINITION.
    For a survivor they are empty; `reason` then says why it is equivalent, where that is proved.
    """

    mutant: str
    kind: str
    killed: bool
    how: str = ""
    property: str = ""
    reason: str = ""
    seconds: float = 0.0
    place: str = ""


class Report(msgspec.Struct, frozen=True):
    """The whole answer. `mutants` is how many there are, of which `outcomes` holds the sample that was tried.

    `places` are the configurations in which they were tried, where there were several; `configuration` is the first.
    """

    schema: int
    profile: str
    remedies: Sequence[str]
    configuration: Mapping[str, str | int]
    seed: int
    mutants: int
    outcomes: Sequence[Outcome]
    complete: bool = True
    places: Sequence[str] = ()
    lost: str = ""
    """Why it is not complete, where that was not an interrupt: a worker ended before its work did."""

    @property
    def killed(self) -> Sequence[Outcome]:
        """Those that some claim noticed."""
        return [o for o in self.outcomes if o.killed]

    @property
    def equivalent(self) -> Sequence[Outcome]:
        """Survivors that are proved to take the same steps as the spec, in each place."""
        return [o for o in self.outcomes if not o.killed and o.reason]

    @property
    def survived(self) -> Sequence[Outcome]:
        """The other survivors: nothing that is claimed needs the fact that was removed."""
        return [o for o in self.outcomes if not o.killed and not o.reason]
