"""The command line. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from lictor.runtime import definition_of, load_target

__all__ = ["definition_of", "load_target"]
