"""A description of a trace that knows its outputs: a prompt finds what earlier outputs left."""

from typing import NamedTuple

import numpy as np
import pytest
from engine import flat
from engine_oracle import Request
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import common
from strategies import Tokens, served_traces

from pipeline.describe.prefixes import shared_prefixes
from pipeline.describe.reuse import last_uses, reuse_distances
from pipeline.describe.sessions import session_prefix_tokens
from pipeline.links import LinkFinder
from pipeline.trace import TraceColumns
from pipeline.tree import TraceTree, build_tree


class Case(NamedTuple):
    """A trace, and the session of each request."""

    requests: list[Request]
    session: list[int]
    block_tokens: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    requests = draw(served_traces()).requests
    session = st.lists(st.integers(-1, 3), min_size=len(requests), max_size=len(requests))
    return Case(requests, draw(session), draw(st.sampled_from((1, 1, 2, 3, 16))))


def columns_of(requests: list[Request]) -> TraceColumns:
    prompts, outputs = [r.tokens for r in requests], [r.output for r in requests]
    names = [r.namespace for r in requests]
    links = LinkFinder().link_wholes(*flat(prompts), *flat(outputs), names)
    return TraceColumns(
        arrival_us=np.arange(len(requests)),
        prompt_tokens=np.array([len(p) for p in prompts], np.uint32),
        first_token_id=np.zeros(len(requests), np.uint64),
        prefix_seq=links.prefix_seq,
        prefix_tokens=links.prefix.astype(np.uint32),
        whole_tokens=np.array([len(r.tokens + r.output) for r in requests], np.uint32),
        whole_prefix_seq=links.whole_prefix_seq,
        whole_prefix_tokens=links.whole_prefix.astype(np.uint32),
    )


def shared_with(requests: list[Request], seq: int, earlier: list[int]) -> int:
    """Return the longest part of a prompt that one of these has in its prompt + output."""
    prompt = requests[seq]
    same = [requests[e] for e in earlier if requests[e].namespace == prompt.namespace]
    return max((common(r.tokens + r.output, prompt.tokens) for r in same), default=0)


def starts_with(request: Request, namespace: str | None, prefix: Tokens) -> bool:
    whole = request.tokens + request.output
    return request.namespace == namespace and whole[: len(prefix)] == prefix


def expected_prefixes(case: Case) -> dict[frozenset[int], tuple[int, int]]:
    """Return length and edge of the longest prefix that each set of requests shares.

    A set is of the requests whose prompt begins with it and the first that has it at all.
    """
    sharing: dict[tuple[str | None, Tokens], set[int]] = {}
    for seq, request in enumerate(case.requests):
        for end in range(case.block_tokens, len(request.tokens) + 1, case.block_tokens):
            sharing.setdefault((request.namespace, request.tokens[:end]), set()).add(seq)
    of_set: dict[frozenset[int], list[int]] = {}
    for (name, prefix), members in sharing.items():
        first = next(i for i, r in enumerate(case.requests) if starts_with(r, name, prefix))
        if len(members | {first}) > 1:
            of_set.setdefault(frozenset(members | {first}), []).append(len(prefix))
    return {members: (max(ends), len(ends) * case.block_tokens) for members, ends in of_set.items()}


def check_prefixes(case: Case, tree: TraceTree, hit_tokens: int) -> None:
    found = shared_prefixes(tree, case.block_tokens)
    told = {}
    for number in range(len(found.requests)):
        members = found.members(number).tolist()
        assert (min(members), len(members)) == (found.first_seq[number], found.requests[number])
        length = int(found.prefix_tokens[number]), int(found.edge_tokens[number])
        told[frozenset(members)] = length
    assert told == expected_prefixes(case)
    assert len(told) == len(found.requests)
    assert found.saved_tokens.sum() == hit_tokens


@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_a_prompt_finds_earlier_prompts_and_outputs(case: Case) -> None:
    requests, session = case.requests, case.session
    columns = columns_of(requests)
    tree = build_tree(*columns.links, columns.wholes)
    own = session_prefix_tokens(tree, np.array(session, np.int32))
    assert own.tolist() == [
        shared_with(requests, seq, [e for e in range(seq) if session[e] == name]) * (name >= 0)
        for seq, name in enumerate(session)
    ]
    hits = columns.prefix_tokens - columns.prefix_tokens % case.block_tokens
    shared = [shared_with(requests, seq, list(range(seq))) for seq in range(len(requests))]
    assert columns.prefix_tokens.tolist() == shared
    check_prefixes(case, tree, int(hits.sum()))
    last_use = last_uses(tree, hits.astype(np.int64))
    assert last_use.tolist() == [
        max(e for e in range(seq) if starts_with(requests[e], r.namespace, r.tokens[: hits[seq]]))
        if hits[seq]
        else -1
        for seq, r in enumerate(requests)
    ]
    lengths = [len(r.tokens + r.output) for r in requests]
    assert reuse_distances(columns, last_use)["age_tokens"].tolist() == [
        sum(lengths[before:seq]) for seq, before in enumerate(last_use) if before >= 0
    ]


@pytest.mark.parametrize("outputs", [(), (1,), (1, 2)])
def test_requests_that_share_only_their_outputs_save_nothing(outputs: Tokens) -> None:
    requests = [Request((5,), outputs, None, None), Request((), (5, *outputs), None, None)]
    columns = columns_of(requests)
    found = shared_prefixes(build_tree(*columns.links, columns.wholes), 1)
    assert len(found.requests) == 0
