"""The commands of the pages about Spark can be typed as they stand there.

Nothing is run: each would start a JVM. The soak types docs/pipeline.md and looks at what comes of it
(`test_pipeline_page.py`); the commands of README and of docs/operations.md are run by other tests.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.core
import typer.main
from typer._click.core import Command

from cli.commands import app

ROOT = Path(__file__).parents[2]
PAGES = ["audit.md", "distributed-cleaning.md", "pipeline.md", "recipes.md"]
KOMPAKT = ".venv/bin/kompakt"


def typed(page: Path) -> Iterator[list[str]]:
    """What stands behind every `kompakt` of the page's console blocks, up to a pipe."""
    blocks = re.findall(
        r"^```console\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    for line in "".join(blocks).splitlines():
        words = shlex.split(line, comments=True)
        for at, word in enumerate(words):
            if word == KOMPAKT:
                end = words.index("|", at) if "|" in words[at:] else len(words)
                yield words[at + 1 : end]


def understood(arguments: list[str]) -> str:
    """The name of the command, all of whose arguments are known; nothing is run."""
    command: Command | None = typer.main.get_command(app)
    context, names = None, ["kompakt"]
    while isinstance(command, typer.core.TyperGroup):
        context = command.make_context(names[-1], list(arguments), parent=context)
        name, command, arguments = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        names.append(str(name))
    assert command is not None
    command.make_context(names[-1], list(arguments), parent=context)
    return " ".join(names[1:])


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_can_be_typed(page: str) -> None:
    names = [understood(arguments) for arguments in typed(ROOT / "docs" / page)]

    assert any(name.startswith("pipeline ") for name in names)


def test_an_option_that_is_not_there_is_not_understood() -> None:
    with pytest.raises(Exception, match="No such option: --nope"):
        understood(["pipeline", "table", "batch", "--nope"])
