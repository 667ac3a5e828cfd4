"""Errors that a user can act on: one class a stage, each saying when it is raised."""

import difflib
from collections.abc import Collection


class ReplayError(Exception):
    """Base of every error the library raises on purpose; its text says what to do."""


class UsageError(ReplayError):
    """A setting is out of range or unknown: raised before any file is touched."""


class LogError(ReplayError):
    """A request log can't be read, or too many of its lines had to be rejected."""


class TraceError(ReplayError):
    """A trace breaks its contract: missing, truncated, other schema, unsorted, broken links."""


class PolicyError(ReplayError):
    """A routing policy failed, or chose a replica that it was not shown; `seq` is the request."""

    def __init__(self, message: str, seq: int) -> None:
        super().__init__(message)
        self.seq = seq


class RunError(ReplayError):
    """A run folder is missing, incomplete, or not one of ours."""


class QueryError(ReplayError):
    """A report's SQL, or the user's own, could not be run."""


def unknown(kind: str, name: str, known: Collection[str]) -> UsageError:
    """Return the error for a name that is none of the known ones; it proposes the nearest."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return UsageError(f"unknown {kind} {name!r}{hint}: choose from {', '.join(known)}")
