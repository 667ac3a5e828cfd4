"""SymbolStore: what outgrows memory lies in a file that nobody sees, and links stay the same."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import environment

from pipeline import symbols
from pipeline.links import LinkFinder
from pipeline.symbols import SymbolStore


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "MEMORY_SYMBOLS", 1 << 16)
    monkeypatch.setattr(symbols, "_RELEASE_SYMBOLS", 1 << 12)


@pytest.mark.usefixtures("little_memory")
def test_values_survive_the_way_from_memory_to_disk_and_every_growth(tmp_path: Path) -> None:
    store = SymbolStore(tmp_path)
    used, rng = 0, np.random.default_rng(0)
    expected = np.empty(0, np.uint32)
    for _ in range(40):
        more = rng.integers(0, 2**32, 20_000, np.uint32)
        store.reserve(used, used + len(more))
        store.array[used : used + len(more)] = more
        used += len(more)
        store.release(used)
        expected = np.concatenate((expected, more))
        assert np.array_equal(store.array[:used], expected)
    assert list(tmp_path.iterdir()) == []


def _links(batches: list[list[list[int]]], folder: Path | None) -> list[tuple[int, int]]:
    finder = LinkFinder(folder)
    found = []
    for batch in batches:
        offsets = np.concatenate(([0], np.cumsum([len(p) for p in batch]))).astype(np.int64)
        ids = np.array([i for p in batch for i in p], np.uint32)
        seq, prefix = finder.link(ids, offsets)
        found += list(zip(seq.tolist(), prefix.tolist(), strict=True))
    return found


def test_links_are_the_same_with_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    heads = [rng.integers(0, 50, 3000).tolist() for _ in range(6)]
    batches = [
        [
            heads[rng.integers(6)][: rng.integers(1, 3000)] + rng.integers(0, 9, 500).tolist()
            for _ in range(30)
        ]
        for _ in range(12)
    ]
    expected = _links(batches, None)
    monkeypatch.setattr(symbols, "MEMORY_SYMBOLS", 1 << 16)
    monkeypatch.setattr(symbols, "_RELEASE_SYMBOLS", 1 << 12)
    assert _links(batches, tmp_path) == expected


_PEAK = """
import resource, sys
import numpy as np
from pathlib import Path
from pipeline import symbols
from pipeline.links import LinkFinder
symbols.MEMORY_SYMBOLS, symbols._RELEASE_SYMBOLS = 1 << 20, 1 << 21
finder = LinkFinder(Path(sys.argv[1]))
finder.link(np.arange(1000, dtype=np.uint32), np.array([0, 1000]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for batch in range(30):
    ids = np.random.default_rng(batch).integers(0, 2**32, 2_000_000, np.uint32)
    finder.link(ids, np.arange(0, 2_000_001, 2000))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.usefixtures("compiled")
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in kB on Linux alone")
def test_sixty_million_different_tokens_need_little_memory(tmp_path: Path) -> None:
    script = [sys.executable, "-c", _PEAK, str(tmp_path)]
    done = subprocess.run(script, env=environment(), capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100_000, "kB for 240 MB of tokens"
