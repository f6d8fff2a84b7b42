"""A step of a profile: the name of a primitive, with or without a condition."""

CONDITIONS = ("waiting", "admitted", "work")
"""A request waits; this pass has admitted one; a request waits or runs."""


def split(step: str) -> tuple[str, str]:
    """A step of a profile in its primitive and the condition behind ` if `, which may be empty."""
    plain, _, condition = step.partition(" if ")
    return plain, condition
