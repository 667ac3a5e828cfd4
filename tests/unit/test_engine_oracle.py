"""The oracle of all engines, held against the reference's own oracle and cases done by hand."""

from dataclasses import asdict
from random import Random
from typing import Any

import oracle
import pytest
from cache_oracle import BlockCache, Cache, LeafCache, cut
from engine_oracle import CacheState, Eviction, Model, OracleRun, Request, replay
from strategies import POLICIES, Tokens

SGLANG = Model(recompute_last_token=True, refresh="match", when_full="wait")
VLLM = Model("block", 16, recompute_last_token=True, refresh="insert", when_full="wait")
EASY_PRICES = {
    "prefill_ms_per_token": 1.0,
    "lookup_ms_per_token": 0.1,
    "decode_ms_per_token": 10.0,
}


def span(first: int, last: int) -> Tokens:
    return tuple(range(first, last + 1))


def run(requests: list[Request], model: Model, capacity_tokens: int, **knobs: Any) -> OracleRun:
    """Replay on one replica, with arrivals a minute apart unless said otherwise."""
    usual: dict[str, Any] = {"policy": "round_robin", "replicas": 1, "drain_ms": 60_000.0}
    return replay(requests, model=model, capacity_tokens=capacity_tokens, **(usual | knobs))


def column(told: OracleRun, name: str) -> list[Any]:
    return [getattr(one, name) for one in told.decisions]


def random_prompts(rng: Random) -> list[Tokens]:
    trace: list[Tokens] = []
    for _ in range(rng.randint(5, 40)):
        base = rng.choice(trace) if trace and rng.random() < 0.6 else ()
        kept = base[: rng.randint(0, len(base))]
        trace.append(kept + tuple(rng.randrange(3) for _ in range(rng.randint(0, 8))))
    return trace


@pytest.mark.parametrize("seed", range(24))
def test_with_the_reference_model_it_tells_what_the_oracle_of_the_reference_tells(
    seed: int,
) -> None:
    rng = Random(seed)  # noqa: S311 - the same run every time
    prompts = random_prompts(rng)
    gaps = [0.0, *(rng.randint(0, 3000) / 1000 for _ in prompts[1:])]
    settings: dict[str, Any] = {
        "policy": POLICIES[seed % 3],
        "replicas": rng.randint(1, 4),
        "capacity_tokens": rng.randint(4, 24),
        "prefill_ms_per_token": rng.choice((0.025, 1.0, 0.02513)),
        "drain_ms": rng.choice((gaps, 12.0, 0.05)),
    }
    probe = seed % 2 == 0
    wanted = oracle.replay(prompts, probe_refreshes_recency=probe, **settings)
    model = Model(refresh="probe" if probe else "insert")
    told = replay([Request(prompt) for prompt in prompts], model=model, **settings)

    for one, other in zip(told.decisions, wanted.decisions, strict=True):
        assert asdict(one) == asdict(other) | {
            "recomputed_tokens": 0 if one.outcome == "served" else None,
            "queued_requests": None,
            "running_requests": None,
        }
    assert [
        oracle.Eviction(
            row.seq,
            row.replica_id,
            len(row.path) - row.start_tokens,
            row.start_tokens,
            row.last_used_seq,
            row.asked_again_seq,
        )
        for row in told.evictions
    ] == wanted.evictions
    assert [cache.paths for cache in told.caches] == [
        {(None, edge.path) for edge in tree.edges} for tree in wanted.trees
    ]


@pytest.mark.parametrize("kind", [LeafCache, BlockCache])
def test_pinned_and_evictable_blocks_are_all_blocks_through_splits_and_releases(
    kind: type[LeafCache | BlockCache],
) -> None:
    def insert(cache: Cache, tokens: Tokens, *, pin: bool = False) -> None:
        path = cut(tuple((None, token) for token in tokens), 1, partial=False)
        matched = cache.resident(path)
        assert cache.insert(path, matched, len(path) - matched, seq=0) == []
        if pin:
            cache.pins.append(path)

    def sizes(cache: Cache) -> tuple[int, int, int]:
        return len(cache.blocks()), cache.pinned, cache.evictable

    cache = kind(16)
    insert(cache, span(1, 6), pin=True)
    assert sizes(cache) == (6, 6, 0)
    insert(cache, (1, 2, 3, 7, 8))
    assert sizes(cache) == (8, 6, 2)
    insert(cache, (1, 2, 9))
    assert sizes(cache) == (9, 6, 3)
    cache.pins.pop()
    assert sizes(cache) == (9, 0, 9)

    cache = kind(16)
    insert(cache, span(1, 4), pin=True)
    insert(cache, span(1, 6), pin=True)
    insert(cache, (1, 2, 7))
    assert sizes(cache) == (7, 6, 1)
    cache.pins.pop(0)
    assert sizes(cache) == (7, 6, 1)
    cache.pins.pop()
    assert sizes(cache) == (7, 0, 7)


@pytest.mark.parametrize(
    ("model", "evicted"),
    [
        # The tail below the pinned path, and not the path.
        (Model(in_flight="pins"), [(2, (4, 5, 6))]),
        # The look-up finds (1, 2), and what it cuts off must go, the prompt's last token too.
        (
            Model(recompute_last_token=True, refresh="match", in_flight="pins"),
            [(1, (3, 4, 5, 6))],
        ),
        # One block for the last token, which is computed again, then two more: tails first.
        (
            Model("block", recompute_last_token=True, refresh="insert", in_flight="pins"),
            [(1, (6,)), (2, (5,)), (2, (4,))],
        ),
    ],
)
def test_exactly_the_path_in_flight_is_pinned(
    model: Model, evicted: list[tuple[int, Tokens]]
) -> None:
    requests = [
        Request(span(1, 6)),
        Request(span(1, 3), output_tokens=1),
        Request((7, 8, 9), output_tokens=1),
        Request((50,)),
    ]
    told = run(requests, model, 6, drain_ms=1.0)
    assert [(row.seq, row.path[row.start_tokens :]) for row in told.evictions] == evicted
    assert column(told, "outcome") == ["served"] * 3 + ["rejected_pinned"]


@pytest.mark.parametrize(("tokens", "hit"), [(16, 0), (17, 16), (1000, 992), (1024, 1008)])
def test_a_repeated_prompt_computes_its_last_block_again(tokens: int, hit: int) -> None:
    prompt = Request(span(1, tokens))
    assert column(run([prompt] * 3, VLLM, 2048), "matched_tokens") == [0, hit, hit]
    assert column(run([prompt] * 2, VLLM, 2048), "recomputed_tokens") == [0, tokens - hit]


def test_a_repeated_prompt_computes_its_last_token_again_where_a_block_is_a_token() -> None:
    told = run([Request(span(1, 16))] * 3, SGLANG, 2048)
    assert column(told, "matched_tokens") == [0, 15, 15]
    assert column(told, "recomputed_tokens") == [0, 1, 1]


def test_a_request_waits_for_the_completion_that_makes_room() -> None:
    model = Model(in_flight="pins", when_full="wait")
    requests = [Request((1, 2, 3), output_tokens=1), Request((4, 5)), Request((1, 2, 3, 4))]
    told = run(requests, model, 4, drain_ms=[0.0, 1.0, 1.0], **EASY_PRICES)
    # The first runs from 0 to 3 and ends at 13; the second from 13 to 15; the third from 15.
    assert column(told, "queue_wait_ms") == [0.0, 12.0, 13.0]
    assert column(told, "ttft_ms") == [3.0, 14.0, 17.0]
    assert column(told, "queued_requests") == [0, 0, 1]
    assert column(told, "running_requests") == [0, 1, 1]
    assert column(told, "cold_tokens") == [3, 2, 1]
    assert column(told, "evicted_tokens_missed") == [0, 0, 3]
    assert told.evictions == [
        Eviction(1, 1, 0, None, (1, 2, 3), 0, 0, asked_again_seq=2, asked_again_tokens=3),
        Eviction(2, 2, 0, None, (4, 5), 0, 1, asked_again_seq=None, asked_again_tokens=0),
    ]
    assert told.caches == [CacheState({(None, (1, 2, 3, 4))}, 0, 0, 4)]


def test_a_request_is_rejected_where_all_is_pinned_and_none_may_wait() -> None:
    model = Model(in_flight="pins", when_full="reject")
    requests = [Request((1, 2, 3), output_tokens=1), Request((4, 5)), Request((1, 2, 3, 4))]
    told = run(requests, model, 4, drain_ms=[0.0, 1.0, 1.0], **EASY_PRICES)
    assert column(told, "outcome") == ["served", "rejected_pinned", "served"]
    assert column(told, "queue_wait_ms") == [0.0, None, 1.0]
    assert column(told, "ttft_ms") == [3.0, None, 2.3]
    assert column(told, "running_requests") == [0, None, 1]
    assert told.evictions == []


def test_an_output_is_found_by_the_next_turn_and_may_evict_for_that() -> None:
    model = Model(
        "block",
        4,
        recompute_last_token=True,
        refresh="insert",
        in_flight="pins",
        when_full="wait",
        cache_output=True,
    )
    requests = [
        Request(span(1, 4), output=span(5, 9), output_tokens=5),
        Request(span(50, 53)),
        Request(span(1, 8)),
    ]
    told = run(requests, model, 8, drain_ms=[0.0, 10.0, 50.0], **EASY_PRICES)
    # The output ends at 54, between the second and the third; its last token is not kept. The
    # third finds a block less than is there, and that one makes room for itself.
    assert column(told, "matched_tokens") == [0, 0, 4]
    assert column(told, "cold_tokens") == [4, 4, 0]
    assert column(told, "recomputed_tokens") == [0, 0, 4]
    assert column(told, "resident_tokens") == [4, 8, 8]
    assert told.evictions == [
        Eviction(1, 0, 0, None, span(50, 53), 0, 1, asked_again_seq=None, asked_again_tokens=0),
        Eviction(2, 2, 0, None, span(1, 8), 4, 0, asked_again_seq=None, asked_again_tokens=0),
    ]
    told = run(requests, model, 8, drain_ms=[0.0, 10.0, 40.0], **EASY_PRICES)
    assert column(told, "cold_tokens") == [4, 4, 4]


def test_the_partial_last_block_takes_room_while_its_request_runs() -> None:
    model = Model("block", 4, refresh="insert", in_flight="pins", when_full="reject")
    requests = [Request(span(1, 5), output_tokens=1), Request(span(50, 53)), Request(span(60, 63))]
    told = run(requests, model, 12, drain_ms=1.0, to_the_end=False)
    assert column(told, "outcome") == ["served"] * 3
    assert [row.path for row in told.evictions] == [span(50, 53)]
    assert [(cache.pinned_blocks, cache.held_blocks) for cache in told.caches] == [(2, 1)]
    ended = run(requests, model, 12, drain_ms=1.0)
    assert [(cache.pinned_blocks, cache.held_blocks) for cache in ended.caches] == [(0, 0)]


def test_a_partial_block_that_is_kept_is_found_by_the_very_same_prompt_only() -> None:
    model = Model("block", 2, partial_block="keep", refresh="insert")
    prompts = [span(1, 3), span(1, 4), span(1, 3), span(1, 5)]
    told = run([Request(prompt) for prompt in prompts], model, 100)
    assert column(told, "matched_tokens") == [0, 2, 3, 4]


@pytest.mark.parametrize("model", [Model(), SGLANG, VLLM])
def test_namespaces_share_nothing(model: Model) -> None:
    names = [None, "a", "b", "a", None]
    told = run([Request(span(1, 17), namespace=name) for name in names], model, 1000)
    hit = 17 if model == Model() else 16
    assert column(told, "matched_tokens") == [0, 0, 0, hit, hit]
    assert column(told, "cold_tokens") == [17, 17, 17, 0, 0]


def test_blocks_that_look_ups_touch_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="left to the engine"):
        run([], Model("block", refresh="match"), 100)
