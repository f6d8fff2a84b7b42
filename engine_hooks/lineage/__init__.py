"""Which weights are behind each KV page: the least epoch of all that went into it, and the tier that brought it in."""
