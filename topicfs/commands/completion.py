"""`topicfs completion`: prints the script for completion in a shell."""

from __future__ import annotations

import click

from topicfs.callers.completion import SHELLS, script
from topicfs.examples import ExampleCommand


@click.command(
    cls=ExampleCommand,
    examples="""
        topicfs completion bash > ~/.local/share/bash-completion/completions/topicfs  # for bash, for good
        topicfs completion zsh > ~/.zfunc/_topicfs  # for zsh, where ~/.zfunc is in fpath
        topicfs completion fish > ~/.config/fish/completions/topicfs.fish  # for fish
    """,
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script for SHELL; after evaluating it, TAB completes commands, options, topics, files and groups.

    Topics and groups are completed from the directory in --data or TOPICFS_DATA, or from ./data. A cluster is not
    queried.
    """
    from topicfs.main import cli

    click.echo(script(cli, shell))
