"""Replay on branch points: a policy routes a trace over a fleet of radix-tree caches.

fleet      the state: replicas, their edges, residency, requests in flight
cost       lookup and prefill time, rounding
pool       records that are taken and given back
heap       pairing heaps
edges      the table that finds edges
eviction   touches, and the queue of leaves, least recent first
lookup     what replicas hold of a request
room       how much room there is, pins
cache      split, insert, evict
rows       room for rows of evictions
flight     requests in flight, and what happens as they complete
policies   routing rules, and the table that lists them
loop       the one loop
tokens     what became of each prompt's tokens
replayer   Replayer: one policy's replay, batch after batch
"""

from pipeline.replay.policies import POLICIES, find_policy
from pipeline.replay.replayer import Replayer, trace_paths

__all__ = ["POLICIES", "Replayer", "find_policy", "trace_paths"]
