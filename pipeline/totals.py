"""Totals: a policy's sums over a whole run, exact, under the reference's names."""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.replay.cost import CENTS_PER_MS
from pipeline.replay.tokens import Decided
from pipeline.tables import OUTCOMES

_TOKENS = (
    "prompt_tokens",
    "matched_tokens",
    "cold_tokens",
    "evicted_tokens_missed",
    "elsewhere_tokens",
    "recomputed_tokens",
)


class Totals:
    """Adds up decisions as they come."""

    def __init__(self, policy: str, replicas: int) -> None:
        self.policy = policy
        self._outcomes: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._ttft_cents = 0
        self._max_ttft_cents = 0
        self._loads = np.zeros((replicas, 3), np.int64)

    def add(self, decided: Decided) -> None:
        """Add a batch of decisions that count."""
        counts = np.bincount(decided.rows["outcome"], minlength=len(OUTCOMES))
        self._outcomes.update(dict(zip(OUTCOMES, counts.tolist(), strict=True)))
        served = decided.served()
        split = {"prompt_tokens": served.prompt_tokens, **served.tokens}
        self._tokens.update({name: int(split[name].sum(dtype=np.int64)) for name in _TOKENS})
        cents = served.rows["ttft_cents"]
        self._ttft_cents += int(cents.sum())
        self._max_ttft_cents = int(cents.max(initial=self._max_ttft_cents))
        np.add.at(self._loads[:, 0], served.rows["replica_id"], 1)

    def end(self, resident_tokens: NDArray[np.int64]) -> None:
        """Note what the replicas hold in the end."""
        self._loads[:, 1] = resident_tokens

    def add_evictions(self, evictions: NDArray[Any]) -> None:
        """Add cache.EVICTION rows that count."""
        np.add.at(self._loads[:, 2], evictions["replica_id"], evictions["evicted_tokens"])

    def as_dict(self) -> dict[str, Any]:
        """Return the totals; ratios and means of nothing are None."""
        served, prompt = self._outcomes["served"], self._tokens["prompt_tokens"]
        mean = self._ttft_cents / CENTS_PER_MS / served if served else None
        requests = self._loads[:, 0]
        return {
            "policy": self.policy,
            "total_requests": self._outcomes.total(),
            "rejected": {k: n for k, n in self._outcomes.items() if k != "served"},
            "cache_hit_ratio": round(self._tokens["matched_tokens"] / prompt, 4)
            if prompt
            else None,
            **self._tokens,
            "mean_ttft_ms": None if mean is None else round(mean, 2),
            "max_ttft_ms": self._max_ttft_cents / CENTS_PER_MS if served else None,
            "max_replica_requests": int(requests.max()),
            "min_replica_requests": int(requests.min()),
            "total_evicted_tokens": int(self._loads[:, 2].sum()),
            "replica_loads": [
                {
                    "replica_id": replica,
                    "routed_requests": routed,
                    "cached_tokens": resident,
                    "evicted_tokens": evicted,
                }
                for replica, (routed, resident, evicted) in enumerate(self._loads.tolist())
            ],
        }
