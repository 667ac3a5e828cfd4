"""Routing policies: plain functions of one signature, and the table that lists them all.

rule       what a policy is: signature, scores, parameters
choice     best scores, ties, seeded chance
ring       consistent hashing
reference  round_robin, pure_affinity, cache_aware
load       policies that go by load alone
hashing    policies that hash a prefix or a session
scored     policies that add up a score
dynamo     dynamo
gateways   policies of gateways: a match, unless load is out of balance
preble     preble
table      all of them
user       the user's own policy
spec       a policy as it is asked for: name, parameters, view
"""

from pipeline.replay.policies.rule import Parameter, Policy, Score
from pipeline.replay.policies.table import POLICIES

__all__ = ["POLICIES", "Parameter", "Policy", "Score"]
