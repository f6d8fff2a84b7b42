"""`checker reproduce`: a counterexample, run on the real engine."""
