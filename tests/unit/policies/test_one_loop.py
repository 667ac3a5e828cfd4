"""A further policy costs no further loop: one compiled loop serves all of them."""

from engine import link, share

from pipeline.config import FleetConfig, ReplayConfig
from pipeline.replay import POLICIES, Replayer
from pipeline.replay.loop import replay_batch
from pipeline.replay.policies.spec import find_policy


def test_every_policy_is_served_by_the_same_compiled_loop() -> None:
    paths = share(link([(1, 2, 3), (1, 2)]))
    before = len(replay_batch.overloads)
    for policy in POLICIES:
        replayer = Replayer(paths, ReplayConfig(FleetConfig(2, 9)), policy)
        assert replayer.spec == find_policy(policy)
        replayer.finish()
    assert len(replay_batch.overloads) == before == 1
