"""The `replay` command: options in, one stage called, text out; alone in importing click.

group     a click group whose default command is `run`, and how commands end
commands  the commands
options   options shared by commands
"""

from pipeline.cli.commands import main

__all__ = ["main"]
