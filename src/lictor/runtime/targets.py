"""Definitions by place: `file.py:name`, `module:name`, or `team.yaml`, `team.yaml:NAME`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lictor.agent import Agent
from lictor.errors import DefinitionError
from lictor.team import Team

if TYPE_CHECKING:
    from lictor.runtime.yaml_file import TeamFile

__all__ = ["definition_of", "file_of", "file_schema", "load_target", "yaml_of"]

YAML = (".yaml", ".yml")


def load_target(spec: str) -> Any:
    """The object that `spec` names.

    A file is run as Python runs a script's imports: its folder comes first on the path. A module is
    looked up from the working directory on.

    Arguments:
        spec: `shop/clerk.py:clerk` or `shop.clerk:clerk`.

    Raises DefinitionError: no such file, module or name, or an error inside it; the message is one
    line that says what to do.
    """
    place, colon, name = spec.rpartition(":")
    if not colon or not place or os.sep in name:
        place, name = spec, ""
    module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    if not name:
        raise DefinitionError(f"{spec} names no object; write {place}:NAME{_choices(module)}")
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise DefinitionError(f"there is no {name!r} in {place}{_choices(module)}")
        found = getattr(found, part)
    return found


def file_of(spec: str) -> str | None:
    """The file that a target names (`team.yaml`, `shop/clerk.py`), or None when it names a module."""
    place = spec if spec.endswith(YAML) else spec.rpartition(":")[0]
    return place if place.endswith((".py", *YAML)) else None


def yaml_of(spec: str) -> TeamFile | None:
    """The team.yaml that `spec` names, read and checked; None when it names something else.

    Raises DefinitionError, which names file, line and path of what is wrong.
    """
    place = file_of(spec)
    if place is None or not place.endswith(YAML):
        return None
    from lictor.runtime.yaml_file import TeamFile  # brings pydantic and yaml in

    return TeamFile(Path(place), load_target)


def file_schema() -> dict[str, Any]:
    """The JSON Schema of a team.yaml."""
    from lictor.runtime.yaml_checking import file_schema

    return file_schema()


def definition_of(spec: str) -> Agent | Team:
    """The Agent or Team that `spec` names. Raises DefinitionError, also for an object that is neither."""
    file = yaml_of(spec)
    if file is not None:
        return file.definition(spec.removeprefix(file_of(spec) or "").removeprefix(":"))
    found = load_target(spec)
    if not isinstance(found, Agent | Team):
        place, _, name = spec.rpartition(":")
        raise DefinitionError(
            f"{name} in {place} is a {type(found).__name__}, neither an Agent nor a Team{_choices_in(place)}"
        )
    return found


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise DefinitionError(f"there is no file {path} (looked in {Path.cwd()})")
    folder, name = str(path.resolve().parent), path.stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path.resolve()):
        return known
    found = importlib.util.spec_from_file_location(name, path.resolve())
    if found is None or found.loader is None:
        raise DefinitionError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if known is not None:
            sys.modules[name] = known
        raise _broken(str(path), error) from error
    return module


def _from_module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"; write {name}.py:NAME for a file" if Path(f"{name}.py").exists() else ""
            raise DefinitionError(
                f"there is no module {name!r} (looked in {os.getcwd()} and what is installed){hint}"
            ) from None
        raise _broken(name, error) from error
    except (ValueError, TypeError):
        raise DefinitionError(f"{name!r} is no name of a module; write file.py:NAME or module:NAME") from None
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(place: str, error: BaseException) -> DefinitionError:
    """The one line about an error inside a user's module: where, and what."""
    if isinstance(error, SyntaxError):
        return DefinitionError(f"{error.filename or place} cannot be read: {error.msg} (line {error.lineno})")
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return DefinitionError(f"{place} cannot be imported: {type(error).__name__}: {error}{where}")


def _choices(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Agent | Team)]
    return f"; it has {', '.join(names)}" if names else f"; {module.__name__} holds no Agent or Team"


def _choices_in(place: str) -> str:
    return _choices(_from_file(Path(place)) if place.endswith(".py") else _from_module(place))
