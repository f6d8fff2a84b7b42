"""What runs inside the engine's processes: probes, monitor, metrics, remedies.

May import the engine, prometheus_client, msgspec and torch; never z3, spec or checker (import-linter holds this).
What it needs of the spec is generated into `engine_hooks.compiled`.
"""
