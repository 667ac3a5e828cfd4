from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from query_tables import decision, write_run

from pipeline.config import ReplayConfig
from pipeline.errors import UsageError
from pipeline.report import open_run, select
from pipeline.run_folder import TABLES, foreign_names, seed_folder, table_file

NAMES = (
    "cache_aware",
    "round-robin.2~",
    "sglang:match_threshold=0.3,router_view=lag:50",
    "my_module:my_function",
    "a%3Ab",
    "%",
    "a b+c/d\\e",
    "umlaut-ä 的 'x' \"y\"",
    "a[b]*?{c}#&;",
    "007",
    "null",
    "NULL",
    "true",
    "2024-01-01",
)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one row a name, the name in it as text too."""
    run = tmp_path_factory.mktemp("layout")
    for name in NAMES:
        file = table_file(run, "decisions", name)
        file.parent.mkdir(parents=True)
        pq.write_table(pa.table({"name": [name]}), file)
    return run


def test_a_plain_name_is_its_folders_name_and_what_a_folder_cant_hold_is_encoded() -> None:
    run = Path("run")
    assert table_file(run, "decisions", "cache_aware") == Path(
        "run/decisions/policy=cache_aware/part-0.parquet"
    )
    assert table_file(run, "evictions", "sglang:tie=random,a=0.3").parent.name == (
        "policy=sglang%3Atie%3Drandom%2Ca%3D0.3"
    )
    assert table_file(run, "replicas", "*") == Path("run/replicas/policy=*/part-0.parquet")
    assert seed_folder(run, 12) == Path("run/seeds/seed=12")


def test_duckdb_reads_the_very_name(layout: Path) -> None:
    files = str(table_file(layout, "decisions", "*"))
    options = "hive_partitioning = true, hive_types = {'policy': varchar}"
    rows = duckdb.sql(f"select name, policy from read_parquet('{files}', {options})").fetchall()  # noqa: S608
    assert sorted(rows) == sorted(zip(NAMES, NAMES, strict=True))


def test_polars_and_pyarrow_read_the_very_name(layout: Path) -> None:
    schema = {"policy": pl.String}
    files = table_file(layout, "decisions", "*")
    rows = pl.read_parquet(files, hive_partitioning=True, hive_schema=schema).rows()
    assert sorted(rows) == sorted(zip(NAMES, NAMES, strict=True))
    hive = ds.partitioning(pa.schema({"policy": pa.string()}), flavor="hive")
    table = ds.dataset(layout / "decisions", partitioning=hive).to_table()
    assert table["name"] == table["policy"]


def test_the_views_show_the_very_name(tmp_path: Path) -> None:
    rows = {"decisions": [decision(n, policy=name) for n, name in enumerate(NAMES)]}
    rows["seed_decisions"] = [row | {"seed": 1} for row in rows["decisions"]]
    run = write_run(tmp_path, rows, ReplayConfig(policies=NAMES))
    with open_run(run) as connection:
        shown = select(connection, "select policy from decisions order by seq")
        assert shown["policy"].to_pylist() == list(NAMES)
        shown = select(connection, "select policy from seed_decisions order by seq, seed")
        assert shown["policy"].to_pylist() == [name for name in NAMES for _ in range(2)]
        listed = select(connection, "select policy from policies")
        assert listed["policy"].to_pylist() == list(NAMES)


def test_a_name_that_no_folder_can_have_is_refused() -> None:
    name = "x" * 248
    assert len(table_file(Path(), "decisions", name).parent.name) == 255
    for long in (f"{name}y", "ä" * 50):
        with pytest.raises(UsageError, match=f"^policy '{long}' is too long to name a folder"):
            table_file(Path(), "decisions", long)


def test_all_that_a_run_writes_is_its_own_and_all_else_is_foreign(tmp_path: Path) -> None:
    places = (tmp_path, seed_folder(tmp_path, 3))
    own = [table_file(place, table, name) for place in places for table in TABLES for name in NAMES]
    foreign = [
        "backup/decisions/policy=a/part-0.parquet",
        "decisions/policy=a/notes.txt",
        "decisions/run.json",
        "seeds/decisions/policy=a/part-0.parquet",
        "seeds/notes.txt",
        "seeds/seed=3/run.json",
        "seeds/seed=3/trace/policy=a/part-0.parquet",
    ]
    for file in (tmp_path / "run.json", *own, *(tmp_path / name for name in foreign)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert foreign_names(tmp_path) == foreign
