"""`topicfs completion`: what a shell needs to complete the command's words."""

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
    """Print a script for SHELL: evaluated there, TAB completes commands, options, topics, partitions, files and groups.

    They are those of the directory that --data or TOPICFS_DATA names, or ./data. A cluster is not asked.
    """
    from topicfs.main import cli

    click.echo(script(cli, shell))
