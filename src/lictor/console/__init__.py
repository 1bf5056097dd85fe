"""The command line. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from lictor.runtime import agent_of, load_target

__all__ = ["agent_of", "load_target"]
