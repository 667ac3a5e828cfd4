"""Rules that do as they are told, and small runs of the oracle of routers to be worked by hand."""

from collections.abc import Sequence
from typing import Any

from engine_oracle import Model, Request
from router_oracle import OracleRun, replay
from router_views import ReplicaView, RequestView

EASY_PRICES = {
    "prefill_ms_per_token": 1.0,
    "lookup_ms_per_token": 0.1,
    "decode_ms_per_token": 10.0,
}
INSERT = Model(refresh="insert")


class Scripted:
    """Sends requests to the replicas that it was told, and remembers what it saw."""

    def __init__(self, *replicas: int) -> None:
        self.replicas = list(replicas)
        self.seen: list[dict[int, ReplicaView]] = []

    def __call__(self, _request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        self.seen.append({one.replica_id: one for one in replicas})
        return list(self.seen[-1]).index(self.replicas[len(self.seen) - 1])

    def of(self, replica: int, name: str) -> list[Any]:
        return [getattr(one[replica], name) if replica in one else "away" for one in self.seen]


def run(prompts: Sequence[Any], rule: Any, **knobs: Any) -> OracleRun:
    """Replay prompts, one tick apart on two replicas that never evict unless said otherwise."""
    requests = [one if isinstance(one, Request) else Request(one) for one in prompts]
    usual: dict[str, Any] = {
        "looks_up": True,
        "replicas": [(100, 1.0)] * 2,
        "model": INSERT,
        "clock": range(len(requests)),
    }
    return replay(requests, rule=rule, **(usual | EASY_PRICES | knobs))


def column(told: OracleRun, name: str) -> list[Any]:
    return [getattr(one, name) for one in told.decisions]


def gone(told: OracleRun) -> list[tuple[Any, ...]]:
    return [
        (e.seq, e.for_seq, e.cause, e.replica_id, e.path, e.start_tokens) for e in told.evictions
    ]
