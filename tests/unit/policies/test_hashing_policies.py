"""Policies that hash a session or a prefix: session, prefix_hash, chwbl."""

from collections import Counter
from collections.abc import Iterable

import pytest
from policy_states import Router, State, choose, state

from pipeline.replay.policies import POLICIES

KEY = {"session": "session", "prefix_hash": "prefix", "chwbl": "prefix"}
"""What each policy hashes; a session of 0 is none."""

BOUNDED = ["prefix_hash", "chwbl"]
KEYS = range(1, 1501)

every_hash = pytest.mark.parametrize("policy", KEY)
every_bounded = pytest.mark.parametrize("policy", BOUNDED)


def keyed(policy: str, key: int, replicas: int | None = None, **fields: list[int]) -> State:
    """Return a state in which a request with that key comes, idle unless it is told."""
    return state(replicas, **{KEY[policy]: key}, **fields)


def choices(policy: str, keys: Iterable[int], *ids: int) -> list[int]:
    """Return the replicas that the keys belong to among these, all idle."""
    router, asked = Router(policy), keyed(policy, 0, ids=list(ids))
    told = []
    for key in keys:
        asked.request[KEY[policy]] = key
        told.append(router.choose(asked))
    return told


def owner(policy: str, key: int, *ids: int) -> int:
    """Return the replica that the key belongs to among these, all idle."""
    return choices(policy, [key], *ids)[0]


def loaded(
    policy: str, key: int, loads: dict[int, int], tie: str | None = None, **parameters: float
) -> int:
    """Return the replica that is chosen if 0 to N - 1 have so many requests in flight."""
    counts = [loads[r] for r in range(len(loads))]
    halves = {"queued": [n // 2 for n in counts], "running": [n - n // 2 for n in counts]}
    return choose(policy, keyed(policy, key, **halves), tie, **parameters)


@every_hash
def test_a_key_goes_to_the_same_replica_again(policy: str) -> None:
    one, other = Router(policy), Router(policy, seed=9)
    forward = [one.choose(keyed(policy, key, 8), key) for key in KEYS[:200]]
    backward = [other.choose(keyed(policy, key, 8), 7) for key in KEYS[199::-1]]
    assert forward == backward[::-1]


@every_hash
def test_keys_are_spread_over_all_replicas(policy: str) -> None:
    shares = Counter(choices(policy, range(1, 20_001), *range(8)))
    assert shares.keys() == set(range(8))
    assert max(shares.values()) <= 2 * 20_000 / 8
    assert min(shares.values()) >= 20_000 / 8 / 2


@every_hash
def test_keys_of_64_bits_are_spread_over_all_replicas(policy: str) -> None:
    shares = Counter(choices(policy, [key << 50 for key in KEYS], *range(4)))
    assert all(len(KEYS) / 8 <= shares[r] <= len(KEYS) / 2 for r in range(4)), shares


@every_hash
def test_only_the_keys_of_a_replica_that_is_away_move(policy: str) -> None:
    router, moved = Router(policy), Counter[int]()
    for key in KEYS:
        before = router.choose(keyed(policy, key, 6))
        after = router.choose(keyed(policy, key, ids=[0, 1, 2, 4, 5]))
        if before == 3:
            moved[after] += 1
        else:
            assert after == before, key
        assert router.choose(keyed(policy, key, 6)) == before, key
    assert moved.keys() == {0, 1, 2, 4, 5}


@every_hash
def test_a_new_replica_takes_its_keys_from_all_others_and_moves_no_other(policy: str) -> None:
    taken = Counter[int]()
    moves = zip(
        choices(policy, KEYS, 0, 1, 2, 3), choices(policy, KEYS, 0, 1, 2, 3, 9), strict=True
    )
    for before, after in moves:
        assert after in (before, 9)
        taken[before] += after == 9
    assert all(taken[r] > 20 for r in range(4)), taken


@every_hash
def test_the_only_replica_is_chosen(policy: str) -> None:
    for load in (0, 1, 50):
        asked = keyed(policy, 4, ids=[5], queued=[load], running=[0])
        assert choose(policy, asked) == 5


@every_hash
def test_what_matches_does_not_count(policy: str) -> None:
    for key in range(50):
        r = owner(policy, key, 0, 1)
        matched = [0, 100] if r == 0 else [100, 0]
        assert choose(policy, keyed(policy, key, matched=matched, queue=[r, 1 - r])) == r


def test_a_session_stays_whatever_the_load_and_the_prompt() -> None:
    router = Router("session")
    for key in KEYS[:50]:
        r = owner("session", key, 0, 1, 2)
        queued = [100 if n == r else 0 for n in range(3)]
        for prefix in (1, 2, key):
            asked = state(session=key, prefix=prefix, queued=queued, prompt=50 + prefix)
            assert router.choose(asked) == r


def test_a_request_without_a_session_goes_by_its_first_tokens() -> None:
    router = Router("session")
    told = [router.choose(state(4, session=0, prefix=key)) for key in KEYS[:200]]
    assert told == [router.choose(state(4, session=0, prefix=key)) for key in KEYS[:200]]
    assert set(told) == {0, 1, 2, 3}


@pytest.mark.parametrize(("policy", "prefix_tokens"), [("prefix_hash", 256), ("chwbl", 25)])
def test_defaults_are_those_of_the_products(policy: str, prefix_tokens: int) -> None:
    defaults = {p.name: p.default for p in POLICIES[policy].parameters}
    assert defaults == {"prefix_tokens": prefix_tokens, "load_factor": 1.25}


@every_bounded
def test_the_first_request_goes_to_the_owner_of_its_key(policy: str) -> None:
    told = [loaded(policy, key, dict.fromkeys(range(8), 0)) for key in range(200)]
    assert told == [owner(policy, key, *range(8)) for key in range(200)]
    assert set(told) == set(range(8))


@every_bounded
def test_equal_loads_leave_a_key_where_it_is(policy: str) -> None:
    for key in range(20):
        assert loaded(policy, key, dict.fromkeys(range(4), 9)) == owner(policy, key, 0, 1, 2, 3)


def test_prefix_hash_keeps_the_owner_at_the_bound_and_leaves_it_beyond() -> None:
    for key in range(20):
        r = owner("prefix_hash", key, 0, 1)
        at, beyond = {r: 5, 1 - r: 2}, {r: 6, 1 - r: 1}  # 1.25 x (7 + 1) / 2 = 5
        assert loaded("prefix_hash", key, at) == r
        assert loaded("prefix_hash", key, beyond) == 1 - r


def test_prefix_hash_takes_the_least_loaded_where_the_owner_has_too_much() -> None:
    for key in range(20):
        r = owner("prefix_hash", key, 0, 1, 2, 3)
        a, b, c = (n for n in range(4) if n != r)
        assert loaded("prefix_hash", key, {r: 20, a: 3, b: 1, c: 2}) == b
        assert loaded("prefix_hash", key, {r: 20, a: 3, b: 1, c: 1}, tie="lowest") == b


def test_prefix_hash_falls_back_on_the_owner_where_all_have_too_much() -> None:
    for key in range(20):
        r = owner("prefix_hash", key, 0, 1)
        loads = {r: 3, 1 - r: 2}  # 0.5 x (5 + 1) / 2 = 1.5
        assert loaded("prefix_hash", key, loads, load_factor=0.5) == r


def test_chwbl_counts_the_request_itself_and_keeps_the_owner_at_the_bound() -> None:
    for key in range(20):
        r = owner("chwbl", key, 0, 1)
        at, beyond = {r: 4, 1 - r: 3}, {r: 5, 1 - r: 2}  # 1.25 x (7 + 1) / 2 = 5
        assert loaded("chwbl", key, at) == r
        assert loaded("chwbl", key, beyond) == 1 - r


def test_chwbl_walks_the_ring_to_the_first_replica_with_room() -> None:
    fleet, seen = range(5), set()
    for key in range(60):
        first = owner("chwbl", key, *fleet)
        second = owner("chwbl", key, *(n for n in fleet if n != first))
        third = owner("chwbl", key, *(n for n in fleet if n not in (first, second)))
        one_full = {n: 20 if n == first else 1 for n in fleet}  # 1.25 x 25 / 5 = 6.25
        two_full = {n: 20 if n in (first, second) else 1 for n in fleet}  # 1.25 x 44 / 5 = 11
        assert loaded("chwbl", key, one_full) == second, key
        assert loaded("chwbl", key, two_full) == third, key
        seen.add((first, second))
    assert len(seen) > 10


def test_chwbl_walks_past_a_replica_just_beyond_the_bound_and_stops_at_one_at_it() -> None:
    for key in range(30):
        first = owner("chwbl", key, 0, 1, 2)
        second = owner("chwbl", key, *(n for n in range(3) if n != first))
        third = 3 - first - second
        assert loaded("chwbl", key, {first: 12, second: 9, third: 2}) == second  # 1.25 x 24 / 3
        assert loaded("chwbl", key, {first: 11, second: 10, third: 2}) == third


def test_chwbl_goes_by_its_load_factor() -> None:
    for key in range(20):
        r = owner("chwbl", key, 0, 1)
        loads = {r: 5, 1 - r: 2}  # 1.5 x (7 + 1) / 2 = 6
        assert loaded("chwbl", key, loads, load_factor=1.5) == r
        assert loaded("chwbl", key, loads, load_factor=1.25) == 1 - r
