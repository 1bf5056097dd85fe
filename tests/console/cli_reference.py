"""Writes docs/cli.md from the help of the command line: `python tests/console/cli_reference.py`."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import typer.main

from lictor.console.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
HEAD = """\
# The command line

<!-- Written by tests/console/cli_reference.py from the help of the commands; do not edit. -->

Every verb takes `--help`. Exit codes: 0 done, 1 a failed run or check, 2 wrong usage, 3 refused, 130 interrupted.
An error is one line on stderr that says what to do.
"""


def reference() -> str:
    """The whole page."""
    group = typer.main.get_command(app)
    return "\n".join([HEAD, *(section(name, command) for name, command in sorted(verbs(group)))])


def verbs(group: object, above: str = "") -> Iterator[tuple[str, object]]:
    """Every verb with its full name; one that has others below it counts itself if it does something alone."""
    for name, command in group.commands.items():
        below = getattr(command, "commands", {})
        if not below or command.invoke_without_command:
            yield above + name, command
        if below:
            yield from verbs(command, f"{above}{name} ")


def section(name: str, command: object) -> str:
    """One verb: usage, what it does, its arguments and options."""
    usage = " ".join(shown(each) if each.required else f"[{shown(each)}]" for each in command.params)
    rows = [f"| `{shown(each)}` | {each.help} |" for each in command.params]
    text = "\n\n".join(" ".join(part.split()) for part in dedent(command.help).split("\n\n"))
    return "\n".join(
        [f"## lictor {name}", "", text, "", f"    lictor {name} {usage}", "", "| | |", "|---|---|", *rows, ""]
    )


def is_option(parameter: object) -> bool:
    """Whether it is written with dashes."""
    return parameter.param_type_name == "option"


def shown(parameter: object) -> str:
    """How it is typed: `--model openai:NAME`, `--json`, `TARGET`."""
    if not is_option(parameter):
        return parameter.metavar
    value = "" if getattr(parameter, "is_flag", False) else f" {parameter.metavar}"
    return parameter.opts[-1] + value


if __name__ == "__main__":
    PAGE.write_text(reference())
