"""The errors that the hooks raise, all under one base, so that a caller can tell ours from the engine's."""

from __future__ import annotations


class QuiesceError(Exception):
    """Base of every error that `engine_hooks` raises."""


class SettingsError(QuiesceError):
    """A setting in the environment is not valid; the message names it, its value and the valid values."""


class LostSightError(QuiesceError):
    """A probe cannot read what it needs (raised into the engine only in `enforce`)."""


class ProtocolViolationError(QuiesceError):
    """A property of the protocol is false (raised into the engine only in `enforce`)."""


class CensusInputError(QuiesceError):
    """A pool that a census cannot be taken of; the message names the value and the valid ones."""
