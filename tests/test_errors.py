"""Exceptions live in one file, and the tree drawn on its top is the tree of its classes."""

import ast
import builtins
import re
from pathlib import Path

from lictor import errors

SRC = Path(__file__).parent.parent / "src" / "lictor"
CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, BaseException)]


def drawing(cls: type, first: str = "", rest: str = "") -> list[str]:
    """Draw `cls` with everything below it, in the order of the file."""
    below = [child for child in CLASSES if cls in child.__bases__]
    lines = [first + cls.__name__]
    for child in below:
        last = child is below[-1]
        lines += drawing(child, rest + ("└── " if last else "├── "), rest + ("    " if last else "│   "))
    return lines


def test_the_drawing_on_top_shows_the_classes():
    """Rebuilt from the classes, the tree equals the one in the docstring, line by line."""
    drawn = re.findall(r"^    ((?:[│├└─ ]{4})*[A-Z]\w+)", errors.__doc__, flags=re.MULTILINE)
    roots = [cls for cls in CLASSES if not set(cls.__bases__) & set(CLASSES)]
    assert drawn == [line for root in roots for line in drawing(root)]


def test_every_exception_is_exported():
    """`lictor.errors` exports every exception it defines."""
    assert {cls.__name__ for cls in CLASSES} - set(errors.__all__) == set()


def test_every_exception_says_what_it_is_for():
    """Each class has a docstring of its own."""
    assert [cls.__name__ for cls in CLASSES if not vars(cls).get("__doc__")] == []


def test_no_exception_is_defined_elsewhere():
    """Exceptions stand in errors.py; only one that never leaves its file may be private there."""
    known = {name for name in dir(builtins) if isinstance(getattr(builtins, name), type)}
    known = {name for name in known if issubclass(getattr(builtins, name), BaseException)}
    known |= {cls.__name__ for cls in CLASSES}
    elsewhere = [
        f"{path.relative_to(SRC)}: {node.name}"
        for path in sorted(SRC.rglob("*.py"))
        if path != SRC / "errors.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for base in map(ast.unparse, node.bases)
        if base.rpartition(".")[2] in known or base.endswith(("Error", "Exception"))
    ]
    assert elsewhere == []
