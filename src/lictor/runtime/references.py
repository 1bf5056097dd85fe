"""Definitions by reference: `module:attr`, imported when a Runtime is made."""

from __future__ import annotations

import importlib
from functools import reduce
from typing import Any

from lictor.errors import DefinitionError

__all__ = ["referred"]


def referred(definition: Any) -> Any:
    """The object that `module:attr` names; anything that is no text is given back.

    Raises DefinitionError when there is no such module or name. What the module itself raises is raised.
    """
    if not isinstance(definition, str):
        return definition
    module, colon, name = definition.partition(":")
    if not colon or not module or not name:
        raise DefinitionError(f"definition {definition!r}: write module:attr")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{module}.".startswith(f"{exc.name}."):
            raise
        raise DefinitionError(f"definition {definition!r}: there is no module {exc.name!r}") from exc
    try:
        return reduce(getattr, name.split("."), found)
    except AttributeError as exc:
        raise DefinitionError(f"definition {definition!r}: {exc}") from exc
