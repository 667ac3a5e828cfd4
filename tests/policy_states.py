"""Routing policies that are asked on hand-made states, without a replay."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.config import TIES
from pipeline.kernel import NONE, kernel
from pipeline.replay.policies import POLICIES
from pipeline.replay.policies.rule import SIGNATURE, Policy
from pipeline.replay.records import REPLICA, REQUEST

SHORT = {
    "ids": "replica_id",
    "queue": "queue_ticks",
    "matched": "matched_tokens",
    "touched": "matched_seq",
    "resident": "resident_tokens",
    "capacity": "capacity_tokens",
    "queued": "queued_requests",
    "running": "running_requests",
    "prefill": "prefill_tokens",
    "active": "active_tokens",
    "active_matched": "active_matched_tokens",
    "prompt": "prompt_tokens",
    "block": "block_tokens",
    "clock": "clock_ticks",
}
"""Short names of fields of REPLICA and REQUEST."""

SECOND = 10_000_000
"""Ticks of a second."""

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mixed(word: int) -> int:
    """Return the finalizer of SplitMix64."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _WORD
    return word ^ (word >> 31)


def chance_of(seed: int, seq: int) -> int:
    """Return what the replay puts into REQUEST.chance."""
    return mixed((mixed((seed + _GOLDEN) & _WORD) + seq * _GOLDEN) & _WORD)


class State(NamedTuple):
    """REQUEST[1] and REPLICA[N]: a moment at which a policy is asked."""

    request: NDArray[Any]
    replicas: NDArray[Any]


def state(replicas: int | None = None, **fields: Any) -> State:
    """Return a state: a list for a field of the replicas, one number for one of the request.

    What is not told: a prompt of 100 tokens in blocks of 10, replicas 0 to N - 1 of a million
    tokens that hold, match and do nothing; what matches was used by request 0, and computing
    costs 250 ticks a token, finding 15.
    """
    named = {SHORT.get(name, name): value for name, value in fields.items()}
    lists = {name: value for name, value in named.items() if name in REPLICA.names}
    count = replicas or len(next(iter(lists.values())))
    request, fleet = np.zeros(1, REQUEST), np.zeros(count, REPLICA)
    request["prompt_tokens"], request["block_tokens"] = 100, 10
    for name in named.keys() - lists.keys():
        request[name] = named[name]
    fleet["replica_id"], fleet["capacity_tokens"] = range(count), 1_000_000
    for name, values in lists.items():
        assert len(values) == count, name
        fleet[name] = values
    matched, prompt = fleet["matched_tokens"], request["prompt_tokens"][0]
    if "matched_seq" not in lists:
        fleet["matched_seq"] = np.where(matched, 0, NONE)
    if "exec_ticks" not in lists:
        fleet["exec_ticks"] = 15 * matched + 250 * (prompt - matched)
    return State(request, fleet)


def random_state(rng: random.Random, replicas: int = 12) -> State:
    """Return any state of a fleet of so many replicas, of which some may be away."""
    ids = sorted(rng.sample(range(replicas), rng.randint(1, replicas)))
    prompt, most = rng.choice((1, 9, 100, 640, 5000)), rng.choice((0, 1, 3, 12, 90))

    def some(top: int) -> list[int]:
        return [rng.randint(0, top) if rng.random() < 0.7 else 0 for _ in ids]

    matched, active, capacity = some(prompt), some(10 * prompt), [prompt + n for n in some(9999)]
    return state(
        ids=ids,
        prompt=prompt,
        block=rng.choice((1, 16, 64)),
        first_token_id=rng.getrandbits(64),
        prefix=rng.getrandbits(64),
        session=rng.getrandbits(64),
        clock=rng.randint(0, 2000 * SECOND),
        queue=some(30 * SECOND),
        matched=matched,
        touched=[rng.randint(0, 99) if m else NONE for m in matched],
        resident=[rng.randint(m, max(m, c)) for m, c in zip(matched, capacity, strict=True)],
        capacity=capacity,
        requests=some(1000),
        queued=some(most),
        running=some(most),
        prefill=some(20 * prompt),
        active=active,
        active_matched=[rng.randint(0, min(a, prompt)) for a in active],
    )


@cache
def compiled(rule: Callable[..., int]) -> Any:
    """Return a policy's function as the replay calls it."""
    return kernel(signature=SIGNATURE)(rule)


def bare(rule: Callable[..., int]) -> Policy:
    """Return a policy of that function, of which nothing else is known."""
    return Policy(rule, source="a test", scores=())


class Router:
    """A policy with its parameters, its memory and its seed.

    left    the last state that it was asked in, as it left that
    branch  which of its scores decided then
    scores  of the replicas, then
    """

    def __init__(
        self,
        policy: str | Policy,
        tie: str | None = None,
        seed: int = 0,
        replicas: int = 16,
        **parameters: float,
    ) -> None:
        self.policy = POLICIES[policy] if isinstance(policy, str) else policy
        told = [parameters.pop(p.name, p.default) for p in self.policy.parameters]
        assert not parameters, f"no such parameter: {parameters}"
        self.parameters = np.array(told, np.float64)
        self.memory = self.policy.memory(replicas)
        self.tie = TIES.index(tie or self.policy.tie or "lowest")
        self.seed, self.turn = seed, 0
        self.left, self.branch, self.scores = state(1), 0, [0.0]

    def choose(self, asked: State, seq: int = 0) -> int:
        """Return the replica_id that the policy chooses for that request; the state stays."""
        request, replicas = asked.request.copy(), asked.replicas.copy()
        request["seq"], request["chance"] = seq, chance_of(self.seed, seq)
        request["tie"], request["turn"] = self.tie, self.turn
        place = compiled(self.policy.rule)(request[0], replicas, self.parameters, self.memory)
        assert 0 <= place < len(replicas), f"place {place} of {len(replicas)}"
        self.left = State(request, replicas)
        self.branch, self.scores = int(request["branch"][0]), replicas["score"].tolist()
        self.turn = int(asked.replicas["replica_id"][place]) + 1
        return self.turn - 1


def choose(policy: str, asked: State, tie: str | None = None, **parameters: float) -> int:
    """Return the replica_id that a policy without a past chooses."""
    return Router(policy, tie, **parameters).choose(asked)


def spread(policy: str | Policy, asked: State, seqs: Iterable[int] = range(300), **how: Any) -> Any:
    """Return how often each replica is chosen in the same state, by requests of these numbers."""
    router = Router(policy, **how)
    return Counter(router.choose(asked, seq) for seq in seqs)


def chi_square(counts: Counter[int], shares: dict[int, float]) -> float:
    """Return how far counts are from shares of their sum; infinite for what has no share."""
    if counts.keys() - shares.keys():
        return np.inf
    total = counts.total() / sum(shares.values())
    return sum((counts[r] - total * share) ** 2 / (total * share) for r, share in shares.items())
