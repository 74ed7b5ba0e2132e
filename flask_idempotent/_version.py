"""The version, in a file so that a build needs no git."""

__version__ = "0.1.0.dev0"
