"""What users may import is written down, sorted, and true."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import lictor

SRC = Path(__file__).parent.parent / "src"
DOORS = [
    path
    for path in sorted((SRC / "lictor").glob("*.py")) + sorted((SRC / "lictor").glob("*/__init__.py"))
    if not path.name.startswith("_") or path.name == "__init__.py"
]
NAMES = [".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__") for path in DOORS]


def order(name: str) -> tuple[bool, bool, str]:
    """Constants first, then classes, then the rest, each by name; `ruff check --fix` sorts like that."""
    return (not name.isupper(), not name[0].isupper(), name)


def test_the_root_stays_small():
    """The root exports at most 45 names."""
    assert len(lictor.__all__) <= 45


def test_the_root_exports_what_it_holds():
    """Every public name of the root is in `__all__`, submodules aside."""
    public = {name for name in dir(lictor) if not name.startswith("_")}
    held = {name for name in public if not inspect.ismodule(getattr(lictor, name)) and name != "annotations"}
    assert held - set(lictor.__all__) == set()


@pytest.mark.parametrize(("name", "path"), [*zip(NAMES, DOORS, strict=True)], ids=NAMES)
def test_every_door_says_what_it_exports(name, path):
    """The root and each room have a literal, sorted `__all__` without doubles, and every name in it exists."""
    lists = [
        ast.literal_eval(node.value)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert len(lists) == 1
    module = importlib.import_module(name)
    assert lists[0] == sorted(set(lists[0]), key=order)
    assert [export for export in lists[0] if not hasattr(module, export)] == []


def test_the_package_is_typed():
    """Type checkers of users read our annotations."""
    assert (SRC / "lictor" / "py.typed").exists()
