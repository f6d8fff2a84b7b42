"""Mutation of the spec: each fact in it is removed once, to see whether some property notices."""
