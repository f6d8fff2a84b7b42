"""The model: a TLA-style state machine over Z3 terms, its properties, and engine profiles.

`tla` is the vocabulary, `profile` the data of one engine version, `ledger` and `protocol` build the state machine from
it, `properties` is the catalogue. Imports z3 and the standard library, never an engine (import-linter holds this).
"""
