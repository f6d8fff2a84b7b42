"""Replay: whether the spec allows what a trace says that an engine did."""
