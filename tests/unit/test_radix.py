"""The online tree by example: the cases of radix trees and prefix caches, and its errors."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pipeline import RadixKvTree

Tokens = tuple[int, ...]

PROJECT = Path(__file__).parents[2]
NOTHING_LEFT = r"Cannot evict {} tokens: all remaining cached nodes are pinned"


def nodes(tree: RadixKvTree) -> Iterator[Any]:
    waiting = list(tree.root.children.values())
    while waiting:
        node = waiting.pop()
        waiting.extend(node.children.values())
        yield node


def total_pinned_evictable(tree: RadixKvTree) -> tuple[int, int, int]:
    total = sum(len(node.tokens) for node in nodes(tree))
    pinned = sum(len(node.tokens) for node in nodes(tree) if node.pin_count)
    assert tree.cached_tokens == total
    return total, pinned, total - pinned


def state(tree: RadixKvTree) -> tuple[Any, ...]:
    def describe(node: Any) -> tuple[Any, ...]:
        inner = sorted(describe(child) for child in node.children.values())
        return node.tokens, node.last_access_step, node.pin_count, inner

    counters = tree.step_clock, tree.cached_tokens, tree.total_evicted_tokens
    return counters, dict(tree.pinned_sequences), describe(tree.root)


def matched(tree: RadixKvTree, *tokens: int) -> int:
    return tree.match_prefix(tokens)[0]


def test_a_pin_inside_an_edge_leaves_the_tail_evictable() -> None:
    tree = RadixKvTree(6)
    tree.insert((1, 2, 3, 4, 5, 6))
    assert tree.insert((1, 2, 3), pin=True) == {
        "matched_tokens": 3,
        "new_tokens": 0,
        "cached_tokens": 6,
    }
    tree.insert((7, 8, 9))
    assert (tree.total_evicted_tokens, tree.cached_tokens) == (3, 6)
    assert matched(tree, 1, 2, 3, 4, 5, 6) == 3


def test_a_pin_holds_the_leaf_itself_and_not_only_what_is_above_it() -> None:
    tree = RadixKvTree(6)
    tree.insert((1, 2))
    tree.insert((1, 2, 3, 4), pin=True)
    with pytest.raises(RuntimeError, match=NOTHING_LEFT.format(1)):
        tree.insert((9, 9, 9))
    assert tree.cached_tokens == 4
    assert tree.insert((9, 8))["cached_tokens"] == 6
    with pytest.raises(RuntimeError, match=NOTHING_LEFT.format(3)):
        tree.insert((7, 6, 5))
    assert matched(tree, 9, 8) == 2


def test_pinned_and_evictable_add_up_through_splits_and_release() -> None:
    tree = RadixKvTree(16)
    tree.insert((1, 2, 3, 4, 5, 6), pin=True)
    assert total_pinned_evictable(tree) == (6, 6, 0)
    tree.insert((1, 2, 3, 7, 8))
    assert total_pinned_evictable(tree) == (8, 6, 2)
    tree.insert((1, 2, 9))
    assert total_pinned_evictable(tree) == (9, 6, 3)
    tree.release_pin((1, 2, 3, 4, 5, 6))
    assert total_pinned_evictable(tree) == (9, 0, 9)


def test_releasing_the_shorter_of_two_pins_frees_nothing_that_the_longer_holds() -> None:
    tree = RadixKvTree(16)
    tree.insert((1, 2, 3, 4), pin=True)
    tree.insert((1, 2, 3, 4, 5, 6), pin=True)
    tree.insert((1, 2, 7))
    assert total_pinned_evictable(tree) == (7, 6, 1)
    tree.release_pin((1, 2, 3, 4))
    assert total_pinned_evictable(tree) == (7, 6, 1)
    tree.release_pin((1, 2, 3, 4, 5, 6))
    assert total_pinned_evictable(tree) == (7, 0, 7)


def test_a_sequence_pinned_twice_is_held_until_it_is_released_twice() -> None:
    tree = RadixKvTree(8)
    tree.insert((1, 2), pin=True)
    tree.insert((1, 2), pin=True)
    assert tree.pinned_sequences == {(1, 2): 2}
    tree.release_pin((1, 2))
    assert total_pinned_evictable(tree) == (2, 2, 0)
    tree.release_pin((1, 2))
    assert total_pinned_evictable(tree) == (2, 0, 2)
    assert tree.pinned_sequences == {}


def test_eviction_takes_the_tail_of_a_chain_every_time() -> None:
    for _ in range(200):
        tree = RadixKvTree(9)
        for tokens in ((1, 2, 3), tuple(range(1, 7)), tuple(range(1, 10)), (20, 21, 22)):
            tree.insert(tokens)
        assert (tree.total_evicted_tokens, tree.cached_tokens) == (3, 9)
        assert matched(tree, *range(1, 10)) == 6


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_hash_seed_does_not_choose_the_victim(seed: str) -> None:
    program = (
        "from pipeline import RadixKvTree\n"
        "tree = RadixKvTree(9)\n"
        "for n in (3, 6, 9): tree.insert(tuple(range(1, n + 1)))\n"
        "tree.insert((20, 21, 22))\n"
        "print(tree.total_evicted_tokens, tree.match_prefix(tuple(range(1, 10)))[0])\n"
    )
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["3", "6"]


@pytest.mark.parametrize("turns", [400, 5000])
def test_a_growing_conversation_meets_no_recursion_limit(turns: int) -> None:
    tree = RadixKvTree(turns)
    conversation = tuple(range(turns))
    for turn in range(1, turns + 1):
        grown = tree.insert(conversation[:turn])
        assert (grown["matched_tokens"], grown["new_tokens"]) == (turn - 1, 1)
    assert tree.cached_tokens == turns
    tree.insert((9999,))
    assert tree.total_evicted_tokens == 1
    assert tree.match_prefix(conversation)[0] == turns - 1


def test_an_only_child_is_not_joined_to_its_parent() -> None:
    tree = RadixKvTree(12)
    for tokens in ((1, 2, 3, 4, 5, 6), (1, 2, 3, 7, 8, 9), tuple(range(20, 26))):
        tree.insert(tokens)
    assert (tree.total_evicted_tokens, tree.cached_tokens) == (3, 12)
    tree.insert((30, 31, 32))
    assert (tree.total_evicted_tokens, tree.cached_tokens) == (6, 12)
    assert matched(tree, 1, 2, 3, 7, 8, 9) == 3


def test_nodes_do_not_pile_up_under_changing_prefixes() -> None:
    tree = RadixKvTree(640)
    for turn in range(3000):
        tree.insert(tuple((turn * 7919 >> shift) % 5 for shift in range(16)))
        assert tree.cached_tokens <= 640
        if turn % 100 == 0:
            sizes = [len(node.tokens) for node in nodes(tree)]
            assert min(sizes) > 0
            assert sum(sizes) == tree.cached_tokens
    assert tree.total_evicted_tokens > 0


def test_a_match_inside_an_edge_refreshes_the_whole_edge() -> None:
    tree = RadixKvTree(10)
    tree.insert((1, 2, 3, 4))
    tree.insert((5, 6, 7, 8))
    assert matched(tree, 1) == 1
    tree.insert((9, 10, 11, 12))
    assert matched(tree, 1, 2, 3, 4) == 4
    assert matched(tree, 5, 6, 7, 8) == 0


def test_a_split_gives_both_halves_the_recency_and_pins_of_the_edge() -> None:
    tree = RadixKvTree(16)
    tree.insert((1, 2, 3, 4), pin=True)
    stamp = tree.match_prefix((1, 2, 3, 4))[1].last_access_step
    tree.insert((1, 2, 9))
    upper = tree.root.children[1]
    lower = upper.children[3]
    assert (upper.tokens, lower.tokens) == ((1, 2), (3, 4))
    assert (upper.pin_count, lower.pin_count) == (1, 1)
    assert lower.last_access_step == stamp < upper.last_access_step
    assert lower.parent is upper
    assert upper.parent is tree.root
    assert (lower.is_leaf, upper.is_leaf) == (True, False)


def test_a_match_names_the_deepest_node_and_does_not_split_it() -> None:
    tree = RadixKvTree(16)
    tree.insert((1, 2, 3, 4))
    length, node = tree.match_prefix((1, 2, 8))
    assert (length, node.tokens) == (2, (1, 2, 3, 4))
    assert tree.match_prefix((7,)) == (0, tree.root)
    assert tree.match_prefix(()) == (0, tree.root)


def test_the_path_of_an_insertion_is_not_evicted_for_it() -> None:
    tree = RadixKvTree(8)
    tree.insert((1, 2, 3, 4))
    tree.insert((5, 6, 7, 8))
    assert tree.insert((1, 2, 3, 4, 9))["cached_tokens"] == 5
    assert matched(tree, 1, 2, 3, 4, 9) == 5


def test_the_unmatched_tail_of_a_split_edge_may_leave_for_the_insertion_that_split_it() -> None:
    tree = RadixKvTree(4)
    tree.insert((1, 2, 3, 4))
    assert tree.insert((1, 2, 8, 9)) == {"matched_tokens": 2, "new_tokens": 2, "cached_tokens": 4}
    assert tree.total_evicted_tokens == 2
    assert matched(tree, 1, 2, 3, 4) == 2


def test_evict_lru_frees_whole_leaves_oldest_first_and_says_how_much() -> None:
    tree = RadixKvTree(16)
    for tokens in ((1, 2, 3), (4, 5), (6, 7, 8, 9)):
        tree.insert(tokens)
    matched(tree, 1)
    assert tree.evict_lru(0) == 0
    assert tree.evict_lru(1) == 2
    assert tree.evict_lru(5) == 7
    assert (tree.cached_tokens, tree.total_evicted_tokens) == (0, 9)
    assert tree.root.is_leaf


def test_evict_lru_passes_over_pins_and_refuses_more_than_there_is() -> None:
    tree = RadixKvTree(16)
    tree.insert((1, 2, 3), pin=True)
    tree.insert((4, 5))
    assert tree.evict_lru(1) == 2
    with pytest.raises(RuntimeError, match=NOTHING_LEFT.format(1)):
        tree.evict_lru(1)
    assert matched(tree, 1, 2, 3) == 3


def test_a_parent_left_without_children_is_a_leaf_of_its_own_age() -> None:
    tree = RadixKvTree(16)
    tree.insert((1, 2))
    tree.insert((1, 2, 3))
    tree.insert((4,))
    assert tree.evict_lru(1) == 1
    assert tree.root.children[1].is_leaf
    assert tree.evict_lru(1) == 2
    assert list(tree.root.children) == [4]


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize(
    ("tokens", "error"),
    [(tuple(range(1, 12)), ValueError), ((1, 2, 3, 4, 9, 10, 11, 12), RuntimeError)],
)
def test_a_failed_insert_leaves_tree_counters_and_clock_as_they_were(
    tokens: Tokens, error: type[Exception], pin: bool
) -> None:
    tree = RadixKvTree(10)
    tree.insert((1, 2, 3, 4, 5, 6), pin=True)
    tree.insert((20, 21, 22, 23), pin=True)
    before = state(tree)
    root = tree.root
    with pytest.raises(error):
        tree.insert(tokens, pin=pin)
    assert state(tree) == before
    assert tree.root is root


def test_an_insert_that_frees_some_but_not_enough_frees_nothing() -> None:
    tree = RadixKvTree(10)
    tree.insert((1, 2, 3, 4, 5, 6), pin=True)
    tree.insert((7, 8))
    before = state(tree)
    with pytest.raises(RuntimeError, match=NOTHING_LEFT.format(3)):
        tree.insert((11, 12, 13, 14, 15))
    assert state(tree) == before


def test_errors_name_their_reason() -> None:
    for capacity in (0, -1):
        with pytest.raises(ValueError, match="max_cached_tokens must be positive"):
            RadixKvTree(capacity)
    tree = RadixKvTree(4)
    with pytest.raises(ValueError, match="Request length exceeds replica KV cache capacity"):
        tree.insert((1, 2, 3, 4, 5))
    tree.insert((1, 2))
    with pytest.raises(ValueError, match="No active pin for this sequence"):
        tree.release_pin((1, 2))
    tree.insert((1,), pin=True)
    tree.root.children.clear()
    with pytest.raises(RuntimeError, match="Pinned sequence is missing"):
        tree.release_pin((1,))


def test_a_new_tree_is_empty_and_holds_16384_tokens() -> None:
    tree = RadixKvTree()
    assert tree.max_cached_tokens == 16384
    assert (tree.step_clock, tree.cached_tokens, tree.total_evicted_tokens) == (0, 0, 0)
    assert tree.pinned_sequences == {}
    assert (tree.root.tokens, tree.root.parent, tree.root.children) == ((), None, {})


def steps_of(action: Callable[[], None]) -> int:
    """Count the bytecodes that an action runs: work, whatever the machine's speed."""
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        nonlocal steps
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        steps += event == "opcode"
        return trace

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(earlier)
    return steps


def test_an_insert_that_evicts_one_leaf_does_not_visit_all_leaves() -> None:
    def steps_with(leaves: int) -> int:
        tree = RadixKvTree(leaves)
        for token in range(leaves):
            tree.insert((token,))

        def insert_a_hundred() -> None:
            for token in range(leaves, leaves + 100):
                tree.insert((token,))

        steps = steps_of(insert_a_hundred)
        assert tree.total_evicted_tokens == 100
        return steps

    few, many = steps_with(200), steps_with(2000)
    assert 0 < many < 3 * few
