"""A click group whose default command is `run`, and how commands end: messages, exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 and 143 interrupted (SIGINT, SIGTERM), 141 the
reader of our output went away.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from pipeline.errors import ReplayError, UsageError

DONE, FAILED, USAGE, INTERRUPTED, PIPE_CLOSED, TERMINATED = 0, 1, 2, 130, 141, 143


class ReplayGroup(click.Group):
    """Reads `replay TRACE …` as `replay run TRACE …`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `run` before options of a run and before anything that looks like a file."""
        first = args[0] if args else ""
        of_group = {o for p in self.get_params(ctx) for o in p.opts}
        is_option = first.startswith("-") and first not in of_group
        if first not in self.commands and (is_option or _looks_like_path(first)):
            args = ["run", *args]
        with _readers_may_leave(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say that the word is neither a file nor a command."""
        if args[0] not in self.commands:
            known = ", ".join(sorted(self.commands))
            raise click.UsageError(f"{args[0]!r} is neither a file nor a command ({known})")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _readers_may_leave(ctx):
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


@contextmanager
def _readers_may_leave(ctx: click.Context) -> Iterator[None]:
    """End quietly if the reader of our output has seen enough (`| head`); that is no failure."""
    try:
        yield
    except BrokenPipeError:
        _drop_stdout()
        ctx.exit(PIPE_CLOSED)


def _drop_stdout() -> None:
    """Let what can't be written any more go, so that Python's own end doesn't try again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _looks_like_path(word: str) -> bool:
    return bool(word) and ("." in word or os.sep in word or Path(word).exists())


def run_command(group: click.Group) -> NoReturn:
    """Run the command line and exit; every error we know is one line on stderr."""
    signal.signal(signal.SIGTERM, _terminate)
    code = DONE
    try:
        result = group.main(prog_name="replay", standalone_mode=False)
        code = result if isinstance(result, int) else DONE
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "replay"
        code = _say(f"{error.format_message().rstrip('.')}; see: {path} --help", USAGE)
    except click.Abort:
        code = INTERRUPTED
    except UsageError as error:
        code = _say(str(error), USAGE)
    except (ReplayError, OSError, click.ClickException) as error:
        code = _say(str(error), FAILED)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_stdout()
    sys.exit(code)


def _say(message: str, code: int) -> int:
    click.echo(f"replay: {' '.join(message.split())}", err=True)
    return code


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(TERMINATED)
