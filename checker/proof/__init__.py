"""Proof engines: claims of a spec become obligations for Z3; what fails becomes a counterexample that is re-run.

`system` holds one solver per action, `lemmas` finds inductive lemmas, `safety` and `liveness` prove, `rank`
synthesises, `refute` finds reachable violations, stuck regions and fair lassos, `interpreter` re-runs without a solver.
"""
