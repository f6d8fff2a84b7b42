"""The environment variables, and what a wrong value says."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_hooks.errors import SettingsError
from engine_hooks.settings import LineageOptions, Mode, Settings

KNOWN = {"reap-while-paused": "", "another": ""}


def test_nothing_set_is_observe_without_remedies() -> None:
    settings = Settings.from_environment({})
    assert settings == Settings(Mode.OBSERVE, (), None)
    assert settings.chosen_remedies(KNOWN) == ()


@pytest.mark.parametrize("text", ["off", "observe", "enforce", " Enforce "])
def test_modes(text: str) -> None:
    assert Settings.from_environment({"QUIESCE": text}).mode.value == text.strip().lower()


def test_an_unknown_mode_names_the_value_and_the_valid_ones() -> None:
    with pytest.raises(SettingsError, match=r"QUIESCE='enforced' is not a mode; valid: off, observe, enforce"):
        Settings.from_environment({"QUIESCE": "enforced"})


def test_remedies_by_name_and_all() -> None:
    one = Settings.from_environment({"QUIESCE_REMEDIES": " reap-while-paused , "})
    assert one.chosen_remedies(KNOWN) == ("reap-while-paused",)
    every = Settings.from_environment({"QUIESCE_REMEDIES": "all"})
    assert every.chosen_remedies(KNOWN) == ("another", "reap-while-paused")


@pytest.mark.parametrize("beside", ["another", "all"])
def test_an_unknown_remedy_names_the_value_and_the_valid_ones(beside: str) -> None:
    settings = Settings.from_environment({"QUIESCE_REMEDIES": f"reap-while-pausing,{beside}"})
    with pytest.raises(SettingsError, match=r"'reap-while-pausing', unknown; valid: all, another, reap-while-paused"):
        settings.chosen_remedies(KNOWN)


def test_status_directory() -> None:
    assert Settings.from_environment({"QUIESCE_STATUS_DIR": "somewhere"}).status_dir == Path("somewhere")


def test_record_directory_is_only_what_is_set() -> None:
    assert Settings.from_environment({"QUIESCE_RECORD": " "}).record_dir is None
    assert Settings.from_environment({"QUIESCE_STATUS_DIR": "somewhere"}).record_dir is None
    assert Settings.from_environment({"QUIESCE_RECORD": "somewhere"}).record_dir == Path("somewhere")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", LineageOptions(on=False)),
        ("off", LineageOptions(on=False)),
        (" ON ", LineageOptions(on=True, keys=262_144)),
        ("5000", LineageOptions(on=True, keys=5000)),
    ],
)
def test_lineage_is_off_unless_it_is_asked_for(text: str, options: LineageOptions) -> None:
    assert Settings.from_environment({"QUIESCE_LINEAGE": text}).lineage_options() == options


@pytest.mark.parametrize("text", ["yes", "0", "-1", "1.5", "1" * 10, "\u0663"])
def test_a_lineage_that_is_none_names_the_value_and_the_valid_ones(text: str) -> None:
    settings = Settings.from_environment({"QUIESCE_LINEAGE": text})
    with pytest.raises(
        SettingsError, match=r"QUIESCE_LINEAGE=.* is not valid; valid: on, off, or a number of storage keys"
    ):
        settings.lineage_options()
