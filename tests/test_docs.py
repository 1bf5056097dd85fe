"""The documentation cannot lie: its code runs, its links lead somewhere, and it names what there is."""

import ast
import asyncio
import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lictor import errors

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROSE = "\n".join(page.read_text() for page in PAGES if page.name != "CHANGELOG.md")
FENCE = re.compile(r"(<!-- no-run -->\s*)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The reasons of AGENT-HOOKS-0.1, §11; an interceptor may not use them, an operator meets them all.
RESERVED = {
    "adapter_unsupported", "approval_identity_mismatch", "approval_resolver_failed", "approval_unresolved",
    "composition_disagreement", "context_invalid", "interceptor_failed", "interceptor_timeout", "no_interceptor",
    "streaming_unsupported", "transform_conflict", "transform_invalid", "transform_target_forbidden",
    "verdict_invalid",
}  # fmt: skip


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[str]:
    """The Python blocks of a page that can run, padded so that errors show the page's line numbers."""
    text = page.read_text()
    found = [match for match in FENCE.finditer(text) if not match[1]]
    return ["\n" * text.count("\n", 0, match.start(2)) + match[2] for match in found]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name)
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch):
    """The Python blocks of a page run from top to bottom as one program; `await` may stand at the top level."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    with asyncio.Runner(debug=False) as runner:
        for block in blocks(page):
            code = compile(block, name(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            result = eval(code, module.__dict__)
            if inspect.iscoroutine(result):
                runner.run(result)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page):
    """A relative link names a file that exists."""
    links = re.findall(r"\]\((?!\w+:)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_exception_is_documented():
    """A user can look up each exception by its name."""
    exported = {name: getattr(errors, name) for name in errors.__all__}
    names = [name for name, cls in exported.items() if isinstance(cls, type) and issubclass(cls, BaseException)]
    assert [name for name in names if not re.search(rf"\b{name}\b", PROSE)] == []


def test_every_host_error_has_a_row_for_operators():
    """docs/operations.md explains exactly the reserved reasons."""
    table = re.findall(r"^\| `host_error:(\w+)`", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    assert sorted(table) == sorted(RESERVED)


def test_every_dependency_has_a_reason():
    """Each package the product needs is argued for in docs/decisions/000-dependencies.md."""
    project = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)[1]
    needed = re.findall(r'"([\w.-]+)', listed)
    reasons = (ROOT / "docs" / "decisions" / "000-dependencies.md").read_text()
    assert [package for package in needed if f"| `{package}` |" not in reasons] == []


@pytest.mark.skipif(
    not (ROOT / "src" / "lictor" / "console" / "cli.py").exists(), reason="the command line is not built yet"
)
def test_every_command_is_documented():
    """Each verb of the command line is mentioned somewhere."""
    typer = pytest.importorskip("typer.main")
    cli = importlib.import_module("lictor.console.cli")
    group = typer.get_command(cli.app)
    verbs = [verb for verb, command in getattr(group, "commands", {}).items() if not command.hidden]
    assert verbs
    assert [verb for verb in verbs if f"lictor {verb}" not in PROSE] == []
