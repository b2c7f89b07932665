"""The reference of all commands, made from their --help texts: `python -m dmkl.cli.reference` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from dmkl.errors import EXIT_CODES

REFERENCE = Path(__file__).parents[1] / "docs/reference/cli.md"  # kept equal to `reference()` by a test


def reference() -> str:
    """The reference as Markdown, in the order in which `cli` lists its commands."""
    from dmkl.cli.main import cli

    head = ["# Commands", "", "Generated from the --help texts by `python -m dmkl.cli.reference`.", ""]
    codes = ["## Exit codes", "", *(f"* {code}: {meaning}" for code, meaning in EXIT_CODES.items())]
    return "\n".join([*head, *_section(cli, "dmkl"), *codes]) + "\n"


def _section(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    yield f"## {' '.join([name, *command.collect_usage_pieces(context)])}"
    yield ""
    yield from (" ".join(part.split()) + "\n" for part in (command.help or "").split("\n\n"))
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    for option in options:
        names = ", ".join((*option.opts, *option.secondary_opts))
        value = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
        yield f"* `{names}{value}` {option.help}"
    yield from [""] if options else []
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            yield from _section(subcommand, f"{name} {subcommand.name}")


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
