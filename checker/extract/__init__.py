"""Reads the source of an engine and derives the facts of its profile. Nothing of the engine is imported or run."""
