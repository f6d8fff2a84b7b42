"""What can be wrong with the documentation. Each is put right in a file of `docs/` or in README.md."""

from __future__ import annotations

from spec.errors import QuiesceError


class DocsError(QuiesceError):
    """A page, a mark or a record of `docs/` that does not fit the code. Remedy: in the text."""
