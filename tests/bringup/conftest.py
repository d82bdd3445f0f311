"""The workspace, built once."""

from tests.bringup.built_workspace import install  # noqa: F401
