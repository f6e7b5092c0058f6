"""`topicfs listener-user`: prints a line for the file that lists a listener's users."""

from __future__ import annotations

import sys

import click

from topicfs.examples import ExampleCommand


@click.command(
    cls=ExampleCommand,
    examples="""
        (umask 077; topicfs listener-user alice >> users.txt)  # asks for alice's password twice
        topicfs listener-user alice < password.txt >> users.txt  # reads the password from a file of one line
        topicfs serve ./data --listen 127.0.0.1:9092 --listen-users users.txt  # accepts alice, with SCRAM or PLAIN
    """,
)
@click.argument("name")
def listener_user(name: str) -> None:
    """Print a line for NAME, for the file of `topicfs serve --listen-users` and `topicfs mount --listen-users`.

    The line has salted keys by which the listener recognizes the password, but not the password itself. To change a
    password, replace the user's line; to remove a user, delete the line. The file must not be accessible to all users
    of the machine.
    """
    from topicfs.listener.security.users import entry

    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
        if sys.stdin.read(1):
            raise click.ClickException("standard input has more than one line; give the password alone")
    click.echo(entry(name, password))
