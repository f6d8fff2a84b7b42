"""Predicates generated from the spec, one module for each engine version; committed, and diffed in CI."""

from __future__ import annotations

from importlib import import_module

from engine_hooks.compiled.types import CompiledLedger, CompiledProfile, Predicate, Repaired, StepPredicate, StuckKey

__all__ = [
    "CompiledLedger",
    "CompiledProfile",
    "Predicate",
    "Repaired",
    "StepPredicate",
    "StuckKey",
    "compiled_profile",
    "known_versions",
]

_MODULES = {("sglang", "0.5.23"): "engine_hooks.compiled.sglang_0_5_23"}


def known_versions(engine: str) -> tuple[str, ...]:
    """The versions of this engine that have a compiled profile, oldest first."""
    return tuple(version for name, version in _MODULES if name == engine)


def compiled_profile(engine: str, version: str) -> CompiledProfile | None:
    """The compiled profile of this engine version, or None where the spec has no profile for it."""
    module = _MODULES.get((engine, version))
    if module is None:
        return None
    profile: CompiledProfile = import_module(module).PROFILE
    return profile
