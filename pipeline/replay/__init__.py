"""Replay on branch points: a policy routes a trace over a fleet of radix-tree caches.

fleet      the state: replicas, edges, residency
cost       lookup and prefill time, rounding
edges      the pool of edges and the table that finds them
eviction   the queue of leaves, least recent first
cache      look up, touch, split, evict, insert
policies   routing rules, and the table that lists them
loop       the one loop
tokens     what became of each prompt's tokens
replayer   Replayer: one policy's replay, batch after batch
"""

from pipeline.replay.policies import POLICIES, find_policy
from pipeline.replay.replayer import Replayer

__all__ = ["POLICIES", "Replayer", "find_policy"]
