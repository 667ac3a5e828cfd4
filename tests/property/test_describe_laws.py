"""A description says of every trace what can be counted, slowly, from its tokens."""

from typing import NamedTuple

import numpy as np
import pytest
from engine import Links, link, random_trace, seeded, tree_of
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import common
from strategies import Tokens, token_traces

from pipeline.describe.prefixes import shared_prefixes
from pipeline.describe.reuse import last_uses, reuse_distances
from pipeline.describe.sessions import session_prefix_tokens
from pipeline.trace import TraceColumns

law = settings(max_examples=200, deadline=None)
Name = str | None


class Case(NamedTuple):
    """A trace, and the namespace, session and arrival of each request."""

    prompts: list[Tokens]
    namespace: list[Name]
    session: list[int]
    arrival_us: list[int]
    block_tokens: int


class Prefix(NamedTuple):
    requests: int
    prefix_tokens: int
    edge_tokens: int
    first_seq: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    prompts = draw(token_traces())
    each = {"min_size": len(prompts), "max_size": len(prompts)}
    return Case(
        prompts,
        draw(st.lists(st.sampled_from((None, None, "adapter")), **each)),
        draw(st.lists(st.integers(-1, 3), **each)),
        sorted(draw(st.lists(st.integers(0, 10**9), **each))),
        draw(st.sampled_from((1, 1, 2, 3, 16))),
    )


def long_case(seed: int) -> Case:
    rng = seeded(seed)
    prompts = random_trace(rng, 120, vocabulary=2, added=40)
    session = [rng.randint(-1, 6) for _ in prompts]
    return Case(prompts, [None] * 120, session, list(range(120)), rng.choice((1, 5, 16)))


def floored(tokens: int, block_tokens: int) -> int:
    return tokens // block_tokens * block_tokens


def shared_with(case: Case, seq: int, earlier: list[int]) -> int:
    """Return the longest prefix that a request shares with one of these."""
    same = [e for e in earlier if case.namespace[e] == case.namespace[seq]]
    return max((common(case.prompts[e], case.prompts[seq]) for e in same), default=0)


def expected_session_prefixes(case: Case) -> list[int]:
    return [
        shared_with(case, seq, [e for e in range(seq) if case.session[e] == own]) if own >= 0 else 0
        for seq, own in enumerate(case.session)
    ]


def expected_hits(case: Case) -> list[int]:
    return [
        floored(shared_with(case, seq, list(range(seq))), case.block_tokens)
        for seq in range(len(case.prompts))
    ]


def expected_last_uses(case: Case) -> list[int]:
    """Return the last request before each that begins with all that it finds; -1 if nothing."""
    return [
        max(
            e
            for e in range(seq)
            if case.namespace[e] == case.namespace[seq]
            and case.prompts[e][:hit] == case.prompts[seq][:hit]
        )
        if hit
        else -1
        for seq, hit in enumerate(expected_hits(case))
    ]


def expected_prefixes(case: Case) -> set[Prefix]:
    """Return the longest prefix of each set of requests that shares one, in full blocks.

    Its edge is of all prefixes that have just these requests.
    """
    begins: dict[tuple[Name, Tokens], list[int]] = {}
    for seq, tokens in enumerate(case.prompts):
        for end in range(case.block_tokens, len(tokens) + 1, case.block_tokens):
            begins.setdefault((case.namespace[seq], tokens[:end]), []).append(seq)
    of_set: dict[tuple[int, ...], list[int]] = {}
    for (_, prefix), requests in begins.items():
        if len(requests) > 1:
            of_set.setdefault(tuple(requests), []).append(len(prefix))
    return {
        Prefix(len(requests), max(ends), len(ends) * case.block_tokens, requests[0])
        for requests, ends in of_set.items()
    }


def links_of(case: Case) -> Links:
    return link(case.prompts, case.namespace)


def columns_of(case: Case, links: Links) -> TraceColumns:
    return TraceColumns(
        arrival_us=np.array(case.arrival_us, np.int64),
        prompt_tokens=links.prompt_tokens,
        first_token_id=np.zeros(len(case.prompts), np.uint64),
        prefix_seq=links.prefix_seq,
        prefix_tokens=links.prefix_tokens.astype(np.uint32),
    )


def check(case: Case) -> None:
    links = links_of(case)
    tree = tree_of(links)
    own = session_prefix_tokens(tree, np.array(case.session, np.int32))
    assert own.tolist() == expected_session_prefixes(case)
    assert (own <= links.prefix_tokens).all()
    hits = links.prefix_tokens - links.prefix_tokens % case.block_tokens
    assert hits.tolist() == expected_hits(case)
    check_prefixes(case, links, int(hits.sum()))
    last_use = last_uses(tree, hits)
    assert last_use.tolist() == expected_last_uses(case)
    ages = reuse_distances(columns_of(case, links), last_use)
    pairs = [(before, seq) for seq, before in enumerate(expected_last_uses(case)) if before >= 0]
    assert [a.tolist() for a in ages.values()] == [
        [case.arrival_us[seq] - case.arrival_us[before] for before, seq in pairs],
        [seq - before for before, seq in pairs],
        [sum(map(len, case.prompts[before:seq])) for before, seq in pairs],
    ]


def check_prefixes(case: Case, links: Links, hit_tokens: int) -> None:
    found = shared_prefixes(tree_of(links), case.block_tokens)
    told = [Prefix(*map(int, row)) for row in zip(*found[:4], strict=True)]
    assert len(told) == len(set(told))
    assert set(told) == expected_prefixes(case)
    assert found.saved_tokens.sum() == hit_tokens
    for number, prefix in enumerate(told):
        [first, *rest] = sorted(found.members(number).tolist())
        path = case.prompts[first][: prefix.prefix_tokens]
        assert (first, 1 + len(rest)) == (prefix.first_seq, prefix.requests)
        assert all(case.prompts[seq][: len(path)] == path for seq in rest)


@law
@given(case=cases())
def test_a_description_is_what_the_tokens_say(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("seed", range(6))
def test_of_long_prompts_too(seed: int) -> None:
    check(long_case(seed))


@law
@given(case=cases(), count=st.integers(1, 12))
def test_the_top_prefixes_are_in_one_order(case: Case, count: int) -> None:
    found = shared_prefixes(tree_of(links_of(case)), case.block_tokens)
    for most, of in (
        (found.requests, lambda p: p.requests),
        (found.saved_tokens, lambda p: p.edge_tokens * (p.requests - 1)),
    ):
        told = [Prefix(*(int(part[i]) for part in found[:4])) for i in found.top(most, count)]
        ranked = sorted(
            expected_prefixes(case), key=lambda p: (-of(p), -p.prefix_tokens, p.first_seq)
        )
        assert told == ranked[:count]


def least_recently_used_hits(trace: list[Tokens], capacity_tokens: int) -> list[int | None]:
    """Return what each request finds in a cache that lets single tokens go; None if too long.

    A token of a prompt is kept by its whole prefix; of one prompt the last token goes first.
    """
    used: dict[Tokens, tuple[int, int]] = {}
    hits: list[int | None] = []
    for seq, tokens in enumerate(trace):
        if len(tokens) > capacity_tokens:
            hits.append(None)
            continue
        prefixes = [tokens[:end] for end in range(1, len(tokens) + 1)]
        hits.append(sum(prefix in used for prefix in prefixes))
        used |= {prefix: (seq, -len(prefix)) for prefix in prefixes}
        for prefix in sorted(used, key=used.__getitem__)[: max(0, len(used) - capacity_tokens)]:
            del used[prefix]
    return hits


@law
@given(trace=token_traces(), capacity_tokens=st.integers(1, 60))
def test_a_cache_still_holds_what_was_used_within_as_many_tokens_as_it_can_hold(
    trace: list[Tokens], capacity_tokens: int
) -> None:
    links = link(trace)
    last_use = last_uses(tree_of(links), links.prefix_tokens)
    for seq, hit in enumerate(least_recently_used_hits(trace, capacity_tokens)):
        age_tokens = sum(map(len, trace[last_use[seq] : seq]))
        if last_use[seq] >= 0 and hit is not None and age_tokens <= capacity_tokens:
            assert hit == links.prefix_tokens[seq]
