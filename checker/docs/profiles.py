"""Blocks about the bundled profiles: what each models, and the remedies and variants that are laid over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checker.docs.blocks import Maker, code, table
from engine_hooks.sglang.remedies import REMEDIES
from spec.profile import DEFAULT_PROFILE, Profile, bundled_profiles, load_profile


def makers() -> Mapping[str, Maker]:
    """What can be generated about profiles."""
    return {
        "profiles": lambda _: _profiles(),
        "differences": lambda _: table(("name", "is", "does", "of profiles"), _differences()),
        "ledgers": lambda _: _ledgers(load_profile(DEFAULT_PROFILE)),
    }


def _every() -> list[Profile]:
    return [load_profile(name) for name in sorted(bundled_profiles(), key=lambda n: (n != DEFAULT_PROFILE, n))]


def _profiles() -> str:
    rows = [
        (f"`{p.name}`", code(p.configuration.loop), code(p.configuration.mode), code(p.configuration.storage),
         code(_own(p)))
        for p in _every()
    ]  # fmt: skip
    return table(("profile", "loops", "pause modes", "storage", "ledgers"), rows)


def _own(profile: Profile) -> list[str]:
    """Those ledgers that exist in some configuration of the profile."""
    storage = any(kind != "none" for kind in profile.configuration.storage)
    return [name for name, ledger in profile.ledgers.items() if storage or ledger.needs != "storage"]


def _differences() -> Iterator[tuple[str, str, str, str]]:
    """Each once, with the profiles that have it; those of the default profile are in all that build on it."""
    where: dict[tuple[str, str, str], list[str]] = {}
    for profile in _every():
        for name, one in profile.remedies.items():
            where.setdefault((name, f"a remedy: `{one.hook}`", one.summary), []).append(profile.name)
        for name, variant in profile.variants.items():
            kind = "a variant that is a hook" if name in REMEDIES else "a variant"
            where.setdefault((name, kind, variant.summary), []).append(profile.name)
    for (name, kind, summary), names in where.items():
        yield f"`{name}`", kind, summary, "all" if names[0] == DEFAULT_PROFILE else code(names)


def _ledgers(profile: Profile) -> str:
    rows = [
        (
            f"`{name}`",
            " → ".join((*one.stages, "retired")),
            f"`{one.reaper}`",
            code(m.by for m in one.moves if m.fair != "none"),
        )
        for name, one in profile.ledgers.items()
    ]
    return table(("ledger", "stages", "reaper", "fair actors"), rows)
