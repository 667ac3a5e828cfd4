"""What became of each part of a prompt, from its beginning to its end."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.explain.moment import Outcome
from pipeline.explain.names import Named
from pipeline.explain.origins import Loss, last_losses
from pipeline.kernel import NONE
from pipeline.plan import Plan
from pipeline.replay.fleet import BEYOND, Fleet

Part = dict[str, Any]


def held_tokens(fleet: Fleet, row: int) -> NDArray[np.int64]:
    """Return the prefix that each replica holds, what a look-up may not find included.

    The fleet is one whose last look-up was for the request in that row.
    """
    replica = np.arange(len(fleet.replicas), dtype=np.uint64)
    beyond = fleet.words[BEYOND, replica // 64] >> (replica % 64) & 1
    matched = fleet.replicas["matched_tokens"]
    held: NDArray[np.int64] = np.where(beyond, fleet.nodes["end"][fleet.ends["last"][row]], matched)
    return held


def prompt_parts(plan: Plan, outcome: Outcome, row: int) -> list[Part]:
    """Return the parts of a served prompt, none of them empty, in order.

    The reasons follow each other in depth: what the replica holds comes before what another one
    holds, then what was evicted everywhere, then what nobody computed.
    """
    decision, fleet = outcome.decision, outcome.fleet
    matched, ever = int(decision["matched_tokens"]), int(decision["ever_tokens"])
    blocks = ever // fleet.rules.block_tokens * fleet.rules.block_tokens
    blocks = ever if decision["kept_once"] else blocks
    held = held_tokens(fleet, row)
    known = np.where(held >= blocks, ever, held)
    here, best = int(known[outcome.chosen]), int(known.max())
    on_replica = int(held[outcome.chosen])
    parts = [
        _part("matched", 0, matched, replica_id=outcome.chosen),
        _part("recomputed", matched, on_replica, reason="end_of_prompt"),
        _part("recomputed", on_replica, here, reason="part_of_a_block"),
        _part("elsewhere", here, best, replicas=_holders(known, here)),
        *(_lost(plan, loss, row) for loss in last_losses(outcome.losses, best, blocks, ever)),
        _part("cold", ever, int(plan.columns.prompt_tokens[row])),
    ]
    return [part for part in parts if part["tokens"] > 0]


def _part(name: str, start: int, end: int, **more: Any) -> Part:
    return {"part": name, "start_tokens": start, "tokens": end - start, **more}


def _holders(known: NDArray[np.int64], here: int) -> list[dict[str, int]]:
    """Return the replicas that hold more of a prompt than the chosen one, the most first."""
    order = np.argsort(-known, kind="stable")
    return [
        {"replica_id": int(replica), "prefix_tokens": int(known[replica])}
        for replica in order[known[order] > here]
    ]


def _lost(plan: Plan, loss: Loss, row: int) -> Part:
    """Return the part that an eviction took."""
    eviction, arrival_us = loss.eviction, plan.columns.arrival_us
    when = int(eviction["seq"])
    return _part(
        "evicted",
        loss.start,
        loss.end,
        replica_id=int(eviction["replica_id"]),
        evicted_for=None if eviction["for_seq"] == NONE else Named(int(eviction["for_seq"])),
        requests_before=int(plan.rank[row] - plan.rank[when]),
        ms_before=int(arrival_us[row] - arrival_us[when]) / 1e3,
        last_used_by=Named(int(eviction["last_used_seq"])),
    )
