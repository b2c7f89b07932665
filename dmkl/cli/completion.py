"""dmkl completion: command completion with the Tab key."""

from __future__ import annotations

from dataclasses import fields

import click
from click.shell_completion import CompletionItem, get_completion_class

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


def setting_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The settings that -s accepts, such as 'solve.tol='."""
    from dmkl.config import SECTIONS

    names = [(section, f) for section, cls in SECTIONS.items() for f in fields(cls) if f.name != "params"]
    items = [(f"{section}.{f.name}=", f.metadata.get("means", "")) for section, f in names]
    return [CompletionItem(name, help=means) for name, means in items if name.startswith(incomplete)]
