"""What an earlier search found for a bundled profile, kept beside it: proofs and counterexamples, no verdicts.

A search is dear and its check is cheap. Whatever is read here is checked in full, against the spec as it is now, before
it counts: each obligation of a proof by the solver, each step of a counterexample by the concrete interpreter. What no
longer holds is passed over, and searched for as if nothing had been kept.
"""
