"""dmkl completion: command completion with the Tab key; and the reference of all commands in the documentation.

Both are made from the commands themselves. `python -m dmkl.cli.reference` writes the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from dmkl.errors import EXIT_CODES

REFERENCE = Path(__file__).parents[1] / "docs/reference/cli.md"  # kept equal to `reference()` by a test
SHELLS = {  # with the command that installs the script
    "bash": "dmkl completion bash >> ~/.bashrc",
    "zsh": "dmkl completion zsh >> ~/.zshrc",
    "fish": "dmkl completion fish > ~/.config/fish/completions/dmkl.fish",
}


@click.command(epilog="\b\n" + "\n".join(SHELLS.values()))
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands, options, files and names of settings."""
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(context.find_root().command, {}, "dmkl", "_DMKL_COMPLETE").source())


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
