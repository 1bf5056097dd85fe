"""Rooms import only rooms above them, by their front door: at run time, for types only, and late."""

import ast
import re
from pathlib import Path

ROOMS = "errors values faults hooks journal runs docket models agent mail team crew supervision adapters runtime"
ROOMS = [*ROOMS.split(), "testing", "console"]
STRANGERS = {("journal", "hooks"), ("runs", "hooks")}  # the order would allow them, the design does not
SRC = Path(__file__).parent.parent / "src" / "lictor"
TREES = {path.relative_to(SRC): ast.parse(path.read_text()) for path in sorted(SRC.rglob("*.py"))}


def exports(room):
    """The `__all__` of a room, as written in its front door."""
    door = TREES.get(Path(room, "__init__.py")) or TREES.get(Path(f"{room}.py")) or ast.Module([])
    lists = [n.value for n in door.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"]
    return {name for value in lists for name in ast.literal_eval(value)}


def imported(path, node):
    """Every dotted name a node imports; relative ones made absolute, `import_module("...")` included."""
    if isinstance(node, ast.ImportFrom):
        start = ["lictor", *path.parts[: len(path.parts) - node.level]] if node.level else []
        return [".".join([*start, *filter(None, [node.module]), alias.name]) for alias in node.names]
    if isinstance(node, ast.Call) and re.search("(import_module|__import__)$", ast.unparse(node.func)):
        return [str(getattr(argument, "value", "")) for argument in node.args]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def allowed(room, name):
    """Tell whether a file of `room` may import the dotted `name`."""
    target, *inner = name.split(".")[1:] or ["the root"]
    above = target in ROOMS[: ROOMS.index(room)] and (room, target) not in STRANGERS
    return target == room or (above and (not inner or (len(inner) == 1 and inner[0] in exports(target))))


def test_rooms_import_only_rooms_above_them():
    """An import across rooms goes up and takes the room or one of its exports; only the root is exempt."""
    wrong = []
    for path, room in [(path, path.parts[0].removesuffix(".py")) for path in TREES if path != Path("__init__.py")]:
        names = [n for node in ast.walk(TREES[path]) for n in imported(path, node) if n.split(".")[0] == "lictor"]
        wrong += [f"{path}: {n}" for n in names if room in ROOMS and not allowed(room, n)]
        wrong += [f"{path} is in no room"] if room not in ROOMS else []
    assert wrong == []
