"""Prefix links are longest common prefixes, and they alone rebuild the tree that tokens make."""

from collections.abc import Sequence

import numpy as np
import pytest
from engine import (
    Links,
    flat,
    link,
    random_settings,
    random_trace,
    replay_engine,
    seeded,
    tree_of,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracle import common
from strategies import Tokens, token_traces

from pipeline.links import LinkFinder
from pipeline.tree import TraceTree
from pipeline.upcoming import NEVER, came, next_below, upcoming_requests

Path = tuple[str | None, Tokens]

law = settings(max_examples=150, deadline=None)
LONG = [random_trace(seeded(seed), 50, vocabulary=2, added=300) for seed in range(4)]
"""Prompts of hundreds of tokens, which are compared 16 at a time."""


def namespaces(requests: int) -> st.SearchStrategy[list[str | None]]:
    name = st.sampled_from((None, "", "adapter"))
    return st.lists(name, min_size=requests, max_size=requests)


def shares(requests: Sequence[Tokens], names: Sequence[str | None], seq: int) -> list[int]:
    """Count what each earlier request shares with one; nothing across namespaces."""
    return [
        common(requests[earlier], requests[seq]) if names[earlier] == names[seq] else 0
        for earlier in range(seq)
    ]


def check_links(requests: list[Tokens], names: list[str | None], links: Links) -> None:
    for seq, (prefix_seq, prefix_tokens) in enumerate(
        zip(links.prefix_seq.tolist(), links.prefix_tokens.tolist(), strict=True)
    ):
        shared = shares(requests, names, seq)
        assert prefix_tokens == max(shared, default=0)
        if prefix_tokens == 0:
            assert prefix_seq == -1
        else:
            assert shared[prefix_seq] == prefix_tokens


def lawful_links(requests: list[Tokens], links: Links, seed: int) -> Links:
    """Return other links: any earlier request that shares as much, for every request."""
    rng, other = seeded(seed), links.prefix_seq.copy()
    for seq, most in enumerate(links.prefix_tokens.tolist()):
        shared = shares(requests, [None] * len(requests), seq)
        if most > 0:
            other[seq] = rng.choice([one for one in range(seq) if shared[one] == most])
    return links._replace(prefix_seq=other)


def boundaries(requests: list[Tokens], names: list[str | None]) -> set[Path]:
    """Return every path from the root to an end of a request or to a place where two part."""
    paths = set()
    for seq, tokens in enumerate(requests):
        depths = [len(tokens), *shares(requests, names, seq)]
        paths.update((names[seq], tokens[:depth]) for depth in depths if depth > 0)
    return paths


def node_paths(tree: TraceTree, requests: list[Tokens], names: list[str | None]) -> dict[int, Path]:
    """Return the path of each node, which must be the same for all requests through it."""
    paths: dict[int, Path] = {}
    for seq, tokens in enumerate(requests):
        node = tree.last[seq]
        assert tree.end[node] == len(tokens)
        while node != 0:
            path = (names[seq], tokens[: tree.end[node]])
            assert paths.setdefault(int(node), path) == path
            node = tree.parent[node]
    return paths


@law
@given(data=st.data(), trace=token_traces())
def test_a_link_is_the_longest_common_prefix_with_an_earlier_request_of_the_namespace(
    data: st.DataObject, trace: list[Tokens]
) -> None:
    names = data.draw(namespaces(len(trace)))
    check_links(trace, names, link(trace, names))


@pytest.mark.parametrize("trace", LONG)
def test_long_prompts_are_compared_to_the_last_token(trace: list[Tokens]) -> None:
    links = link(trace)
    assert sum(links.prefix_tokens > 32) > 10
    check_links(trace, [None] * len(trace), links)


def test_links_of_a_large_trace_are_right_while_the_tables_grow() -> None:
    trace = random_trace(seeded(1), 6000, vocabulary=1 << 32, added=6)
    known: set[Tokens] = {()}
    for tokens, prefix_tokens in zip(trace, link(trace).prefix_tokens.tolist(), strict=True):
        assert tokens[:prefix_tokens] in known
        assert tokens[: prefix_tokens + 1] not in known or prefix_tokens == len(tokens)
        known.update(tokens[:depth] for depth in range(1, len(tokens) + 1))


@law
@given(data=st.data(), trace=token_traces())
def test_splitting_the_input_in_batches_changes_no_link(
    data: st.DataObject, trace: list[Tokens]
) -> None:
    names = data.draw(st.one_of(st.none(), namespaces(len(trace))))
    cuts = data.draw(st.lists(st.integers(0, len(trace)), max_size=6).map(sorted))
    for one, other in zip(link(trace, names), link(trace, names, cuts), strict=True):
        assert one.tolist() == other.tolist()


def test_links_found_request_by_request_are_those_of_the_whole_trace() -> None:
    trace = random_trace(seeded(2), 2500, vocabulary=40, added=9)
    singly = link(trace, batches=range(1, len(trace)))
    for one, other in zip(link(trace), singly, strict=True):
        assert one.tolist() == other.tolist()


HALVES = (0, 1, 2**32 - 1)


@law
@given(trace=token_traces())
@example(trace=[(0, 1, 2), (0, 1, 3), (4, 1, 2), (5, 6, 8, 7), (5, 6, 8)])
def test_halves_of_block_ids_share_twice_what_the_ids_share(trace: list[Tokens]) -> None:
    ids = [low + (high << 32) for high in HALVES for low in HALVES]
    blocks = [tuple(ids[token] for token in tokens) for tokens in trace]
    array, offsets = flat(blocks, np.uint64)
    prefix_seq, halves = LinkFinder().link(array.view(np.uint32), 2 * offsets)
    lengths = np.array([len(tokens) for tokens in trace], np.uint32)
    check_links(
        blocks,
        [None] * len(blocks),
        Links(lengths, np.where(halves > 1, prefix_seq, -1), halves // 2),
    )


def most_shared(
    earlier: Sequence[tuple[int, str | None, Tokens]], name: str | None, tokens: Tokens
) -> tuple[int, set[int]]:
    """Return how much the earlier sequences share with one, and which requests share that."""
    shared = [(common(other, tokens), seq) for seq, of, other in earlier if of == name]
    most = max((n for n, _ in shared), default=0)
    return most, {seq for n, seq in shared if n == most and most > 0}


@law
@given(data=st.data(), wholes=token_traces())
@example(data=None, wholes=[(1, 2, 3), (1, 2, 3, 4), (1, 2), (1, 2, 3, 4)])
def test_a_prompt_and_its_whole_are_linked_to_all_earlier_prompts_and_wholes(
    data: st.DataObject | None, wholes: list[Tokens]
) -> None:
    ends, names, cut = [len(w) // 2 for w in wholes], [None] * len(wholes), len(wholes) // 2
    if data is not None:
        ends = [data.draw(st.integers(0, len(whole))) for whole in wholes]
        names = data.draw(namespaces(len(wholes)))
        cut = data.draw(st.integers(0, len(wholes)))
    prompts = [whole[:end] for whole, end in zip(wholes, ends, strict=True)]
    outputs = [whole[end:] for whole, end in zip(wholes, ends, strict=True)]
    finder = LinkFinder()
    batches = [
        finder.link_wholes(*flat(prompts[some]), *flat(outputs[some]), names[some])
        for some in (slice(cut), slice(cut, None))
    ]
    columns = [np.concatenate(parts).tolist() for parts in zip(*batches, strict=True)]
    earlier: list[tuple[int, str | None, Tokens]] = []
    for seq, (prefix_seq, prefix, whole_seq, whole_prefix) in enumerate(zip(*columns, strict=True)):
        most, sharers = most_shared(earlier, names[seq], prompts[seq])
        assert prefix == most
        assert prefix_seq in (sharers or {-1})
        most, sharers = most_shared(earlier, names[seq], wholes[seq])
        assert whole_prefix == max(most, len(prompts[seq]))
        assert whole_seq in (sharers if most > len(prompts[seq]) else {seq})
        earlier += [(seq, names[seq], prompts[seq]), (seq, names[seq], wholes[seq])]


@law
@given(trace=token_traces())
def test_empty_outputs_change_no_link_of_a_prompt(trace: list[Tokens]) -> None:
    plain = LinkFinder().link(*flat(trace))
    empty = LinkFinder().link_wholes(*flat(trace), *flat([()] * len(trace)))
    assert [column.tolist() for column in plain] == [column.tolist() for column in empty[:2]]
    assert empty.whole_prefix_seq.tolist() == list(range(len(trace)))
    assert empty.whole_prefix.tolist() == [len(tokens) for tokens in trace]


@law
@given(data=st.data(), trace=token_traces())
def test_the_tree_of_the_links_is_the_tree_of_the_tokens(
    data: st.DataObject, trace: list[Tokens]
) -> None:
    names = data.draw(namespaces(len(trace)))
    tree = tree_of(link(trace, names))
    paths = node_paths(tree, trace, names)
    assert (tree.parent[0], tree.end[0], len(tree.parent)) == (-1, 0, len(paths) + 1)
    known = set(paths.values())
    assert len(known) == len(paths)
    assert known == boundaries(trace, names)
    for node, (name, path) in paths.items():
        above = [end for end in range(1, len(path)) if (name, path[:end]) in known]
        parent = int(tree.parent[node])
        assert paths.get(parent) == ((name, path[: above[-1]]) if above else None)
        assert tree.end[parent] == (above[-1] if above else 0)


@law
@given(data=st.data(), trace=token_traces())
def test_a_node_always_knows_the_next_request_that_will_go_through_it(
    data: st.DataObject, trace: list[Tokens]
) -> None:
    names = data.draw(namespaces(len(trace)))
    tree = tree_of(link(trace, names))
    through = {0: list(range(len(trace)))}
    for node, (name, path) in node_paths(tree, trace, names).items():
        through[node] = [
            seq
            for seq, tokens in enumerate(trace)
            if names[seq] == name and tokens[: len(path)] == path
        ]
    upcoming = upcoming_requests(tree)
    for request in range(-1, len(trace)):
        if request >= 0:
            came(upcoming, request)
        for node, requests in through.items():
            later = [seq for seq in requests if seq > request]
            assert next_below(upcoming, node) == (later[0] if later else NEVER)


@law
@given(trace=token_traces(), seed=st.integers(0, 2**32))
def test_any_earlier_request_that_shares_as_much_makes_the_same_decisions(
    trace: list[Tokens], seed: int
) -> None:
    links = link(trace)
    other = lawful_links(trace, links, seed)
    names = [None] * len(trace)
    told = set(node_paths(tree_of(other), trace, names).values())
    assert told == set(node_paths(tree_of(links), trace, names).values())
    knobs = random_settings(seeded(seed), len(trace))
    assert replay_engine(trace, links=other, **knobs) == replay_engine(trace, **knobs)


@pytest.mark.parametrize("trace", LONG)
def test_on_long_prompts_too_any_lawful_link_makes_the_same_decisions(trace: list[Tokens]) -> None:
    links = link(trace)
    other = lawful_links(trace, links, seed=1)
    assert other.prefix_seq.tolist() != links.prefix_seq.tolist()
    knobs = random_settings(seeded(5), len(trace)) | {"capacity_tokens": 900}
    assert replay_engine(trace, links=other, **knobs) == replay_engine(trace, **knobs)
