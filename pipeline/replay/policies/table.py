"""The table that lists all built-in policies."""

from pipeline.replay.policies import gateways, hashing, load, preble, reference, scored
from pipeline.replay.policies.rule import Policy

POLICIES: dict[str, Policy] = {
    **reference.POLICIES,
    **load.POLICIES,
    **hashing.POLICIES,
    **scored.POLICIES,
    **gateways.POLICIES,
    **preble.POLICIES,
}
