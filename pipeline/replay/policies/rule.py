"""What a policy is: a function of one signature, and what has to be known about it.

A policy sees the request at hand and one record a replica (records.REQUEST, records.REPLICA): those
that take requests, in order of replica_id. It returns the place of the one that it chooses. It
leaves what it compares in each replica's `score`, and in request.branch which of its scores that
is. `parameters` are its own, float64, in the order of its table; `memory`, int64, is its own too:
nobody else reads or changes it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from pipeline.replay.records import REPLICA, REQUEST

SIGNATURE = types.int64(
    numba.from_dtype(REQUEST),
    types.Array(numba.from_dtype(REPLICA), 1, "C"),
    types.Array(types.float64, 1, "C"),
    types.Array(types.int64, 1, "C"),
)

FOREVER = 2**62
"""A router's memory without limit, in tokens."""


class Score(NamedTuple):
    """What a policy compares, in words: nothing here decides anything.

    name     what the score of a replica is; what decides instead, if `best` is ""
    best     which score wins: "least", "most", or "" if none does
    unit     "" where the name says it
    scale    so much of the score is one unit
    without  what decides instead if all scores are 0; "" if nothing else does. It may name
             {first_token_id} and {replicas}
    ties     which of equals is chosen, where that is the rule's own; "" for as request.tie says
    draws    whether it is chance that decides
    """

    name: str
    best: str = ""
    unit: str = ""
    scale: int = 1
    without: str = ""
    ties: str = ""
    draws: bool = False


class Parameter(NamedTuple):
    """A number that a policy goes by, from `low` to `high`; a `whole` one has no fraction."""

    name: str
    default: float
    low: float
    high: float
    meaning: str
    whole: bool = False


def _eight_numbers(_replicas: int) -> NDArray[np.int64]:
    return np.zeros(8, np.int64)


class Policy(NamedTuple):
    """A policy.

    rule           its function, not yet compiled
    source         the product whose rule it is
    scores         what it compares, by request.branch
    parameters     its table of parameters
    looks_up       whether it goes by what replicas hold of a prompt
    needs          sum of records.LOAD, ACTIVE, RECENCY, PREFIX and SESSION
    draws          whether it chooses at random beyond ties
    tie            how ties are broken: lowest, random or rotate; None if it leaves none open
    view           what its product sees: exact, lag:MS or routed
    router_tokens  what a router remembers of a replica, for routed; 0: as much as that keeps
    router_ttl_ms  how long it remembers, for routed; None: for ever
    memory         makes its memory for so many replicas
    """

    rule: Callable[..., int]
    source: str
    scores: tuple[Score, ...]
    parameters: tuple[Parameter, ...] = ()
    looks_up: bool = True
    needs: int = 0
    draws: bool = False
    tie: str | None = "lowest"
    view: str = "exact"
    router_tokens: int = FOREVER
    router_ttl_ms: float | None = None
    memory: Callable[[int], NDArray[np.int64]] = _eight_numbers
