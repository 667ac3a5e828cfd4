"""The table that lists all built-in policies."""

from pipeline.replay.policies import dynamo, gateways, hashing, load, preble, reference, scored
from pipeline.replay.policies.rule import Policy

POLICIES: dict[str, Policy] = {
    **reference.POLICIES,
    **load.POLICIES,
    **hashing.POLICIES,
    **dynamo.POLICIES,
    **scored.POLICIES,
    **gateways.POLICIES,
    **preble.POLICIES,
}
