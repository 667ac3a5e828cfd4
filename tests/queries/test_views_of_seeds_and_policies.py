from pathlib import Path

import pytest
from query_tables import SCHEMAS, Row, counted, decision, eviction, replica, run_config, write_run

from pipeline.config import ReplayConfig, RoutingConfig
from pipeline.report import open_run, select

ROWS = {
    "decisions": [decision(0, is_warmup=True), decision(1), decision(2, policy="round_robin")],
    "evictions": [eviction(1)],
    "replicas": [replica(0), replica(1)],
}
FURTHER = {
    "seed_decisions": [
        decision(0, seed=8, is_warmup=True),
        decision(1, seed=8, replica_id=3),
        decision(1, seed=9, replica_id=2),
    ],
    "seed_replicas": [replica(n, seed=seed) for seed in (8, 9) for n in (0, 1)],
}


def ask(run: Path, sql: str) -> list[Row]:
    with open_run(run) as connection:
        rows: list[Row] = select(connection, sql).to_pylist()
        return rows


def test_a_policy_is_shown_as_the_run_chose_it(tmp_path: Path) -> None:
    spec = "sglang:match_threshold=0.3,tie=random"
    chosen = {
        "policy": spec,
        "name": "sglang",
        "source": "SGLang",
        "parameters": {"match_threshold": 0.3, "imbalance_abs": 64},
        "router_view": "routed",
        "router_tokens": 2**62,
        "router_ttl_ms": None,
        "tie": "random",
        "chooses_at_random": True,
        "seeds": 5,
    }
    other = dict.fromkeys(chosen) | {"policy": "it's:f", "parameters": {}}
    config = run_config(ReplayConfig(), chosen_policies=[chosen, other])
    run = write_run(tmp_path, ROWS, ReplayConfig(), config=config)
    first, second = ask(run, "from policies")
    assert first == chosen | {"parameters": '{"match_threshold": 0.3, "imbalance_abs": 64}'}
    assert second == other | {"parameters": "{}"}
    [row] = ask(
        run, "select parameters ->> 'imbalance_abs' as n from policies where name = 'sglang'"
    )
    assert row == {"n": "64"}


def test_timings_have_a_row_a_policy_and_seed(tmp_path: Path) -> None:
    lanes = [
        {
            "policy": "random",
            "seed": seed,
            "requests": 2**40,
            "replay_s": 0.1 + seed,
            "write_s": 1e-06,
            "requests_per_s": 1e7 / 3,
        }
        for seed in (0, 1)
    ]
    assert ask(write_run(tmp_path, ROWS, ReplayConfig(), lanes=lanes), "from timings") == lanes


def test_seeds_have_what_counts_of_the_first_seed_and_of_the_others(tmp_path: Path) -> None:
    config = ReplayConfig(routing=RoutingConfig(seed=7, seeds=3))
    run = write_run(tmp_path, ROWS | FURTHER, config)
    sql = "select policy, seed, seq, replica_id from seed_decisions order by policy, seed, seq"
    rows = ask(run, sql)
    assert [tuple(row.values()) for row in rows] == [
        ("cache_aware", 7, 1, 0),
        ("cache_aware", 8, 1, 3),
        ("cache_aware", 9, 1, 2),
        ("round_robin", 7, 2, 0),
    ]
    rows = ask(run, "select seed, count(*) as n from seed_replicas group by seed order by seed")
    assert [tuple(row.values()) for row in rows] == [(7, 2), (8, 2), (9, 2)]
    first = ask(run, "select * exclude (seed) from seed_decisions where seed = 7 order by seq")
    assert first == ask(run, "from decisions order by seq")
    with open_run(run) as connection:
        for name in FURTHER:
            assert select(connection, f"from {name}").column_names == SCHEMAS[name].names


def test_without_further_seeds_there_is_the_first(tmp_path: Path) -> None:
    config = ReplayConfig(routing=RoutingConfig(seed=2**63 - 1))
    run = write_run(tmp_path, ROWS, config)
    assert not Path(run, "seeds").exists()
    for name, whole in (("decisions", counted(ROWS["decisions"])), ("replicas", ROWS["replicas"])):
        seeds = [row["seed"] for row in ask(run, f"from seed_{name}")]
        assert seeds == [2**63 - 1] * len(whole)


@pytest.mark.parametrize("above", ["policy=x", "seed=3", "tenant=acme", "seeds/seed=1", "[a]=*"])
def test_a_folder_above_the_run_is_no_column_of_it(tmp_path: Path, above: str) -> None:
    folder = tmp_path / above / "run"
    folder.mkdir(parents=True)
    run = write_run(folder, ROWS | FURTHER, ReplayConfig())
    rows = ask(run, "select policy, tenant from decisions order by seq")
    policies = ["cache_aware", "round_robin"]
    assert rows == [{"policy": policy, "tenant": None} for policy in policies]
    rows = ask(run, "select distinct seed from seed_decisions order by seed")
    assert [row["seed"] for row in rows] == [0, 8, 9]
    with open_run(run) as connection:
        for name in (*ROWS, *FURTHER):
            assert select(connection, f"from {name}").column_names == SCHEMAS[name].names


def test_a_query_of_one_policy_reads_its_files_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path, ROWS | FURTHER, ReplayConfig())
    Path(run, "decisions/policy=round_robin/part-0.parquet").write_bytes(b"PAR1 broken PAR1")
    with open_run(run) as connection:
        found = select(connection, "select seq from decisions where policy = 'cache_aware'")
    assert found.to_pylist() == [{"seq": 1}]
