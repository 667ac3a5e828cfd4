"""Replay on branch points: a policy routes a trace over a fleet of radix-tree caches.

records    the records that the state is made of
fleet      the state: replicas, their edges, residency, requests in flight
cost       lookup and prefill time, rounding
pool       records that are taken and given back
heap       pairing heaps
slots      tables from a replica's node to a number
edges      the edges of a replica by their head
eviction   touches, and the queue of leaves, least recent first
lookup     what replicas hold of a request
room       how much room there is, pins
cache      split, insert, evict
rows       room for rows of evictions
active     which tokens requests in flight use
flight     requests in flight, and what happens as they complete
absences   what happens between requests: completions, replicas that go away and return
policies/  routing rules, one function each
router     what a router believes, goes by and remembers
observe    what replicas have for a request, in truth and as the router sees it
serve      what a replica does with a request
loop       the one loop
tokens     what became of each prompt's tokens
settings   what the kernels need of a configuration
growth     room in records and tables
replayer   Replayer: one policy's replay, batch after batch
"""

from pipeline.replay.policies import POLICIES
from pipeline.replay.policies.spec import PolicySpec, find_policy
from pipeline.replay.replayer import Replayer, trace_paths

__all__ = ["POLICIES", "PolicySpec", "Replayer", "find_policy", "trace_paths"]
