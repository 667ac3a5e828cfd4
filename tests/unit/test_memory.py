"""Memory of a replay: what decides it is the fleet and the batch, not the trace's length."""

import subprocess
import sys
from pathlib import Path

import pytest
from command import environment
from samples import write_large_trace

_PEAK = """
import resource, sys
from pathlib import Path
from pipeline.config import ReplayConfig
from pipeline.run import replay_trace
replay_trace(Path(sys.argv[1]), Path(sys.argv[2]), ReplayConfig(), 10_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _peak(trace: Path) -> int:
    script = [sys.executable, "-c", _PEAK, str(trace), str(trace.with_suffix(".run"))]
    done = subprocess.run(script, env=environment(), capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.usefixtures("compiled")
def test_four_times_the_requests_need_at_most_a_fifth_more_memory(tmp_path: Path) -> None:
    peaks = [
        _peak(write_large_trace(tmp_path / f"{rows}.parquet", rows)) for rows in (50_000, 200_000)
    ]
    assert peaks[1] <= 1.2 * peaks[0], peaks
