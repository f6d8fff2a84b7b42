"""Quiesce in SGLang's processes.

Installing the distribution is enough where SGLang loads plugins. Where it does not (Ray actors, embedded schedulers),
call `install` in the process that will build the `Scheduler`, before it does.
"""

from __future__ import annotations

import os


def install() -> None:
    """Hook SGLang in this process, now. Reads the same environment as the plugin; a second call changes nothing."""
    from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: PLC0415 - imported only where an engine runs

    from engine_hooks.sglang.plugin import register_hooks  # noqa: PLC0415 - imported only where an engine runs
    from engine_hooks.sglang.probes_targets import START  # noqa: PLC0415 - imported only where an engine runs

    if START.path in HookRegistry._patched:  # noqa: SLF001 - the engine has no public name for it
        return
    register_hooks(os.environ)
    HookRegistry.apply_hooks()
