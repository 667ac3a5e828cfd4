"""Fixtures for all tests: compiled kernels, a small trace, its run, the reference data."""

from pathlib import Path

import pytest
from samples import SMALL, SMALL_FLEET, write_trace

from pipeline.run import replay_trace

_SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of reference data beside the project."""
    if not _SHARED.is_dir():
        pytest.skip(f"no {_SHARED}: the reference data is not on this machine")
    return _SHARED


@pytest.fixture(scope="session")
def small_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trace of six requests with tokens and links."""
    path = tmp_path_factory.mktemp("small") / "small.parquet"
    return write_trace(path, SMALL, tenant=["a", "b", "a", None, "a", "b"])


@pytest.fixture(scope="session")
def small_run(small_trace: Path) -> Path:
    """Return the run of the small trace over 2 replicas of 6 tokens, only to be read."""
    run = small_trace.with_name("run")
    replay_trace(small_trace, run, SMALL_FLEET)
    return run


@pytest.fixture(scope="session")
def compiled(small_run: Path) -> None:
    """Have every kernel compiled and kept, so that no command has to say that it compiles."""
    assert small_run.is_dir()
