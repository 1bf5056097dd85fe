"""House rules a machine can check: sizes, nesting, frozen values, names, and tests that are sentences.

An exception is made in the source, with a reason, on the line that begins the thing:
`# budget: why` for sizes, nesting, values and sleeps, `# noqa: PLR0913` for parameters.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "lictor").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
BLOCKS = (ast.For, ast.AsyncFor, ast.While, ast.If, ast.Try, ast.TryStar, ast.Match)  # `with` has one way through
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def nodes(paths: list[Path], *kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST, str]]:
    """Every node of these kinds, with its place and the source text of its head (decorators included)."""
    for path in paths:
        text = path.read_text()
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, kinds):
                first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
                body = getattr(node, "body", None)
                last = body[0].lineno - 1 if body else node.lineno
                head = "\n".join(lines[first - 1 : max(first, last)])
                yield f"{path.relative_to(ROOT)}:{node.lineno} {getattr(node, 'name', '')}", node, head


def length(node: ast.AST) -> int:
    """Lines of a class or function, its docstring not counted."""
    first = node.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
    docstring = first.end_lineno - first.lineno + 1 if is_docstring else 0
    return node.end_lineno - node.lineno + 1 - docstring


def depth(node: ast.AST) -> int:
    """How deep blocks are nested below `node`; `elif` adds nothing, an inner function starts anew."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
            deepest = max(deepest, depth(child) + (isinstance(child, BLOCKS) and not is_elif))
    return deepest


def test_modules_have_at_most_500_lines():
    """A module that grows past 500 lines is two modules."""
    counts = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: count for path, count in counts.items() if count > 500} == {}


def test_classes_have_at_most_300_lines():
    """A class that grows past 300 lines does too much."""
    found = [(place, length(node)) for place, node, head in nodes(SOURCES, ast.ClassDef) if "# budget: " not in head]
    assert [(place, count) for place, count in found if count > 300] == []


def test_functions_have_at_most_60_lines():
    """A function fits on a screen."""
    found = [(place, length(node)) for place, node, head in nodes(SOURCES, *FUNCTIONS) if "# budget: " not in head]
    assert [(place, count) for place, count in found if count > 60] == []


def test_functions_take_at_most_seven_parameters():
    """More than seven parameters need a written exception: public constructors, `run`, `start`."""
    long = []
    for place, node, head in nodes(SOURCES, *FUNCTIONS):
        names = [arg.arg for arg in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
        if (
            len([name for name in names if name not in {"self", "cls"}]) > 7
            and "PLR0913" not in head
            and "@overload" not in head
        ):
            long.append(place)
    assert long == []


def test_blocks_are_nested_at_most_three_deep():
    """Deeper nesting hides a function that wants a name."""
    found = [(place, depth(node)) for place, node, head in nodes(SOURCES, *FUNCTIONS) if "# budget: " not in head]
    assert [(place, levels) for place, levels in found if levels > 3] == []


def test_dataclasses_are_values():
    """Dataclasses are frozen and slotted, and keyword-only from the fourth field on; a change is a new value."""
    loose = []
    for place, node, head in nodes(SOURCES, ast.ClassDef):
        fields = sum(isinstance(statement, ast.AnnAssign) for statement in node.body)
        wanted = {"frozen", "slots"} | ({"kw_only"} if fields > 3 else set())
        for decorator in map(ast.unparse, node.decorator_list):
            options = set(re.findall(r"(frozen|slots|kw_only)=True", decorator))
            if re.match(r"(dataclasses\.)?dataclass\b", decorator) and wanted - options and "# budget: " not in head:
                loose.append(place)
    assert loose == []


def test_module_names_say_what_is_inside():
    """No module has a name that would fit any other."""
    vague = {"base", "common", "util", "utils", "core", "manager", "helper", "helpers"}
    assert [str(path.relative_to(ROOT)) for path in SOURCES if vague & {path.stem, path.parent.name}] == []


def test_arguments_are_checked_with_raise():
    """`assert` disappears under `python -O`; the product raises."""
    assert [place for place, _, _ in nodes(SOURCES, ast.Assert)] == []


def test_no_task_outlives_its_group():
    """Tasks are started in task groups only; `asyncio.create_task` and `ensure_future` lose errors."""
    loose = re.compile(r"(asyncio|loop(\(\))?)\.create_task$|(^|\.)ensure_future$")
    uses = [place for place, node, _ in nodes(SOURCES, ast.Attribute) if loose.search(ast.unparse(node))]
    named = [
        place
        for place, node, _ in nodes(SOURCES, ast.ImportFrom)
        if node.module == "asyncio" and {alias.name for alias in node.names} & {"create_task", "ensure_future"}
    ]
    assert uses + named == []


def test_nothing_is_mocked():
    """Tests use real things or the doubles that ship with the product."""
    modules = [(place, ast.unparse(node)) for place, node, _ in nodes(SOURCES + TESTS, ast.Import, ast.ImportFrom)]
    assert [(place, line) for place, line in modules if re.search(r"\b(unittest|mock)\b", line)] == []


def test_no_test_waits_on_the_wall_clock():
    """No test sleeps: `sleep(0)` yields, and a minute or more stands for something that hangs."""
    calls = [(place, ast.unparse(node)) for place, node, line in nodes(TESTS, ast.Call) if "# budget: " not in line]
    waits = re.compile(r"(time|asyncio)\.sleep\((?!(0|[6-9]\d|\d{3,})[,)])")
    assert [(place, call) for place, call in calls if waits.match(call)] == []


def test_every_test_is_a_sentence():
    """Each test has a docstring of one line that ends like a sentence."""
    wrong = []
    for place, node, _ in nodes(TESTS, *FUNCTIONS):
        docstring = ast.get_docstring(node) or ""
        if node.name.startswith("test_") and not (docstring.endswith(".") and "\n" not in docstring):
            wrong.append(place)
    assert wrong == []
