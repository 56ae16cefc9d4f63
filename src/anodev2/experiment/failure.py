"""A run that could not be carried through, although nothing given to it was wrong."""


class RunFailure(RuntimeError):  # noqa: N818
    """Ends one run; its text is one line."""
