"""The one base of every error that a user can cause and mend."""


class TestudoError(Exception):
    """A wrong input, file or configuration. Its text is one plain sentence that says how to mend it."""

    __test__ = False  # pytest collects names that begin with "Test"
