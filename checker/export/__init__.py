"""One configuration of the spec, and its counterexamples, in the languages of other tools."""
