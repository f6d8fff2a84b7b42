"""The requests to an engine that runbooks and the doctor tell people to send, in one place. Tests run them as they are.

`$ENGINE` is the engine's base URL. SGLang refuses `/continue_generation` without a body.
"""

from __future__ import annotations

from collections.abc import Mapping

from spec.errors import UnknownNameError

_POST = "curl -fsS --max-time 30 -X POST"
"""A control request waits where SGLang's tokenizer holds a lock; a person must not."""
_JSON = "-H 'Content-Type: application/json' -d"
_PYTHON = 'python3 -c "import json, sys; print({})"'
_SERIES = "series "

_ABORT = f'{_POST} "$ENGINE/abort_request" {_JSON} \'{{"rid": "", "abort_all": true}}\''

COMMANDS: Mapping[str, str] = {
    "doctor": 'checker doctor --url "$ENGINE"',
    "pause": f'{_POST} "$ENGINE/pause_generation" {_JSON} \'{{"mode": "retract"}}\'',
    "pause-abort": f'{_POST} "$ENGINE/pause_generation" {_JSON} \'{{"mode": "abort"}}\'',
    "continue": f"{_POST} \"$ENGINE/continue_generation\" {_JSON} '{{}}'",
    "abort-all": _ABORT,
    # Where a flush with a time-out waits, this one is answered after it.
    "flush": 'curl -sS -X POST "$ENGINE/flush_cache"',
    "flush-until-done": f'for i in $(seq 100); do {_POST} "$ENGINE/flush_cache" && break; sleep 0.2; done',
    "abort-and-flush": f'for i in $(seq 100); do {_ABORT}; {_POST} "$ENGINE/flush_cache" && break; sleep 0.2; done',
    "update": (
        f'curl -sS -X POST "$ENGINE/update_weights_from_disk" {_JSON}'
        ' \'{"model_path": "PATH OF THE WEIGHTS", "weight_version": "VERSION", "flush_cache": true}\''
    ),
    "set-version": (
        f'{_POST} "$ENGINE/update_weight_version" {_JSON}'
        ' \'{"new_version": "VERSION", "abort_all_requests": false}\''
    ),
    "tokenizer-version": (
        'curl -fsS "$ENGINE/model_info" | ' + _PYTHON.format("json.load(sys.stdin)['weight_version']")
    ),
    "scheduler-versions": (
        'curl -fsS "$ENGINE/server_info" | '
        + _PYTHON.format("[s['weight_version'] for s in json.load(sys.stdin)['internal_states']]")
    ),
}  # fmt: skip
"""By the names that runbooks.toml uses."""


def command(text: str) -> str:
    """The command that an entry of `run` stands for.

    A name of COMMANDS; `series PATTERN`, which shows series by the start of their name after `quiesce_`; or, with a
    blank in it, the command itself. Raises UnknownNameError.
    """
    if text.startswith(_SERIES):
        return f"curl -fsS \"$ENGINE/metrics\" | grep -E '^quiesce_({text.removeprefix(_SERIES)})'"
    if " " in text:
        return text
    if text not in COMMANDS:
        raise UnknownNameError("request", text, COMMANDS)
    return COMMANDS[text]
