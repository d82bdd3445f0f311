"""The base class of every error that a user can cause and correct."""


class TestudoError(Exception):
    """A wrong input, file or configuration. Its text says in plain words what was found and how to correct it."""

    __test__ = False  # pytest collects names that begin with "Test"
