"""Hypothesis strategies: small traces with much in common, small fleets, awkward prices."""

from typing import NamedTuple

from engine_oracle import Model, Request
from hypothesis import strategies as st

Tokens = tuple[int, ...]

LONGEST_PROMPT = 12
POLICIES = ("round_robin", "pure_affinity", "cache_aware")


class Operation(NamedTuple):
    """One call on a tree; `release` and `pin` go together, but not always in pairs."""

    name: str
    tokens: Tokens


class Fleet(NamedTuple):
    """Four tokens of capacity are few enough for prompts that never fit."""

    replicas: int
    capacity_tokens: int


class Served(NamedTuple):
    """A trace with outputs, and how many tokens each of its drawn symbols became."""

    requests: list[Request]
    width: int


class Costs(NamedTuple):
    prefill_ms_per_token: float
    lookup_ms_per_token: float


@st.composite
def _next_prompt(draw: st.DrawFn, earlier: list[Tokens], vocabulary: int) -> Tokens:
    kept: Tokens = ()
    if earlier and draw(st.integers(0, 4)) > 0:
        base = earlier[draw(st.integers(0, len(earlier) - 1))]
        kept = base[: draw(st.integers(0, len(base)))] if draw(st.booleans()) else base
    room = max(0, min(6, LONGEST_PROMPT - len(kept)))
    fewest = 0 if kept else draw(st.sampled_from((0, 1, 1, 1)))
    added = draw(st.lists(st.integers(0, vocabulary - 1), min_size=fewest, max_size=room))
    return kept + tuple(added)


@st.composite
def token_traces(
    draw: st.DrawFn, *, max_requests: int = 25, allow_empty: bool = True
) -> list[Tokens]:
    """Draw prompts of 0 to 12 tokens that often extend, cut or repeat an earlier one."""
    vocabulary = draw(st.integers(2, 4))
    trace: list[Tokens] = []
    for _ in range(draw(st.integers(1, max_requests))):
        prompt = draw(_next_prompt(trace, vocabulary))
        if prompt or allow_empty:
            trace.append(prompt)
    return trace


@st.composite
def served_traces(draw: st.DrawFn, *, max_requests: int = 20) -> Served:
    """Draw prompts with outputs and namespaces; many a prompt extends an earlier output.

    What is drawn is widened, so that some traces have blocks of 16 tokens in common.
    """
    vocabulary, width = draw(st.integers(2, 4)), draw(st.sampled_from((1, 1, 1, 3, 16)))
    names = draw(st.sampled_from(((None,), (None, "a"), ("a", "b"))))
    used: list[Tokens] = []
    requests: list[Request] = []
    for _ in range(draw(st.integers(1, max_requests))):
        prompt = draw(_next_prompt(used, vocabulary))
        output = tuple(draw(st.lists(st.integers(0, vocabulary - 1), max_size=4)))
        used += [prompt, prompt + output]
        whole = tuple(token for token in prompt + output for _ in range(width))
        end = max(0, len(prompt) * width - draw(st.integers(0, width - 1)))
        told = draw(st.sampled_from((None, 0, len(output), 7)))
        requests.append(Request(whole[:end], whole[end:], told, draw(st.sampled_from(names))))
    return Served(requests, width)


@st.composite
def models(draw: st.DrawFn, cache_unit: str, width: int = 1) -> Model:
    """Draw settings of an engine for a trace of that width, so that its prompts have blocks.

    Blocks that look-ups touch are not for the oracle.
    """
    sizes = {1: (1, 1, 2, 3, 4, 16), 3: (2, 3, 4, 16), 16: (4, 16, 16)}[width]
    refreshes = ("insert",) if cache_unit == "block" else ("probe", "match", "insert")
    return Model(
        cache_unit=cache_unit,
        block_tokens=draw(st.sampled_from(sizes)),
        partial_block=draw(st.sampled_from(("drop", "keep"))),
        recompute_last_token=draw(st.booleans()),
        refresh=draw(st.sampled_from(refreshes)),
        in_flight=draw(st.sampled_from(("none", "pins", "pins"))),
        when_full=draw(st.sampled_from(("wait", "reject"))),
        cache_output=draw(st.booleans()),
    )


@st.composite
def tree_operations(draw: st.DrawFn, *, max_operations: int = 25) -> list[Operation]:
    """Draw calls on one tree; most releases are of a sequence that was pinned before."""
    vocabulary = draw(st.integers(2, 4))
    used: list[Tokens] = []
    pinned: list[Tokens] = []
    operations: list[Operation] = []
    for _ in range(draw(st.integers(1, max_operations))):
        name = draw(st.sampled_from(("insert", "insert", "match", "pin", "release", "evict")))
        if name == "release" and pinned and draw(st.booleans()):
            tokens = pinned.pop(draw(st.integers(0, len(pinned) - 1)))
        else:
            tokens = draw(_next_prompt(used, vocabulary))
        if name == "pin":
            pinned.append(tokens)
        used.append(tokens)
        operations.append(Operation(name, tokens))
    return operations


def capacities() -> st.SearchStrategy[int]:
    """Draw a replica's capacity, at times shorter than the longest prompts."""
    return st.integers(4, 24)


def fleets() -> st.SearchStrategy[Fleet]:
    """Draw fleets of one to five replicas."""
    return st.builds(Fleet, replicas=st.integers(1, 5), capacity_tokens=capacities())


def costs() -> st.SearchStrategy[Costs]:
    """Draw prices per token, some of which no binary fraction can hold."""
    return st.builds(
        Costs,
        prefill_ms_per_token=st.sampled_from((0.025, 0.02513, 0.1, 1.0, 0.00005, 0.33333)),
        lookup_ms_per_token=st.sampled_from((0.0015, 0.00137, 0.0, 0.1, 0.00005)),
    )


def decays() -> st.SearchStrategy[float]:
    """Draw what one arrival takes off a queue, from nothing to more than any prompt costs."""
    return st.sampled_from((0.0, 0.01, 0.0333, 0.05, 0.25, 1.0, 2.5, 12.0))


def arrival_gaps(requests: int) -> st.SearchStrategy[list[float]]:
    """Draw the time since the request before in ms, in whole µs; nothing before the first."""
    gap = st.one_of(st.just(0.0), st.integers(1, 3000).map(lambda us: us / 1000))
    later = st.lists(gap, min_size=max(0, requests - 1), max_size=max(0, requests - 1))
    return later.map(lambda gaps: [0.0, *gaps][:requests])


def policies() -> st.SearchStrategy[str]:
    """Draw one of the reference's routing policies."""
    return st.sampled_from(POLICIES)
