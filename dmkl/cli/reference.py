"""The reference of all commands, made from them: `python -m dmkl.cli.reference > dmkl/docs/reference/cli.md`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from dmkl.errors import EXIT_CODES


def reference() -> str:
    """Markdown, in the order in which `cli` lists its commands; a test compares the page with it."""
    from dmkl.cli.main import cli

    head = [
        "# Commands",
        "",
        "Made by `python -m dmkl.cli.reference > dmkl/docs/reference/cli.md`; a test compares.",
        "",
    ]
    codes = ["## Exit codes", "", *(f"* {code}: {meaning}" for code, meaning in EXIT_CODES.items())]
    return "\n".join([*head, *_of(cli, "dmkl"), *codes]) + "\n"


def _of(command: click.Command, name: str) -> Iterator[str]:
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
        for own in command.commands.values():
            yield from _of(own, f"{name} {own.name}")


if __name__ == "__main__":
    click.echo(reference(), nl=False)
