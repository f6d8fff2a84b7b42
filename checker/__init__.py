"""The verifier and everything at a desk: the command, the proof engines, what is generated from the spec."""
