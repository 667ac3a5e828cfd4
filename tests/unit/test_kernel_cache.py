"""Compiled kernels on disk: never older than their sources, and never in the way of a replay."""

import ast
import importlib
import inspect
import os
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from command import COMMAND, environment
from numba.core.dispatcher import Dispatcher
from samples import SMALL, parquet_bytes, write_tokens

import pipeline
from pipeline import kernel

PACKAGE = Path(pipeline.__file__).parent
_PROBE = """
from pipeline.kernel import kernel
from pipeline.replay.cost import TICKS_PER_MS, CENTS_PER_MS, rounded

@kernel
def probe(ms):
    return rounded(ms, TICKS_PER_MS), CENTS_PER_MS

if __name__ == "__main__":
    print(*probe(2.5))
"""


def _modules() -> list[ModuleType]:
    names = [m.name for m in pkgutil.walk_packages(pipeline.__path__, "pipeline.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


def _kernels() -> dict[str, Any]:
    kernels = [value for m in _modules() for value in vars(m).values()]
    return {
        f"{k.py_func.__module__}.{k.py_func.__name__}": k.py_func
        for k in kernels
        if isinstance(k, Dispatcher)
    }


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _defining_file(name: str, module: ModuleType) -> Path:
    """Return the file that gives a module's global its value, following imports."""
    file = Path(inspect.getfile(module))
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if name == (alias.asname or alias.name):
                    return _defining_file(
                        alias.name, importlib.import_module(str(statement.module))
                    )
    return file


def _constants() -> dict[str, Path]:
    found = {}
    for kernel_name, function in _kernels().items():
        module = sys.modules[function.__module__]
        for name in _names(function.__code__):
            value = function.__globals__.get(name)
            if isinstance(value, int | float | np.generic) and not inspect.isclass(value):
                found[f"{name} in {kernel_name}"] = _defining_file(name, module)
    return found


def test_every_constant_that_a_kernel_uses_stands_in_a_file_that_the_cache_looks_at() -> None:
    constants, sources = _constants(), set(kernel.kernel_sources())
    assert len(constants) > 5
    assert {use: file.name for use, file in constants.items() if file not in sources} == {}


def test_every_kernel_stands_in_a_file_that_the_cache_looks_at() -> None:
    kernels, sources = _kernels(), set(kernel.kernel_sources())
    assert len(kernels) > 20
    assert {n for n, f in kernels.items() if Path(inspect.getfile(f)) not in sources} == set()


def test_a_changed_constant_of_another_file_is_seen_by_the_next_run(tmp_path: Path) -> None:
    copy = tmp_path / "pipeline"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "probe.py").write_text(_PROBE)
    (copy / "replay" / "__init__.py").write_text("")  # the loop would compile for seconds
    cost = copy / "replay" / "cost.py"

    def run() -> list[float]:
        variables = environment(PYTHONPATH=str(tmp_path), REPLAY_CACHE_DIR=str(tmp_path / "cache"))
        done = subprocess.run(
            [sys.executable, "-m", "pipeline.probe"],
            env=variables, cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return [float(number) for number in done.stdout.split()]

    assert run() == run() == [25_000, 100]
    compiled = list((tmp_path / "cache").rglob("*.nbi"))
    assert compiled
    text = cost.read_text(encoding="utf-8")
    cost.write_text(text.replace("= 10_000.0", "= 1_000.0").replace("= 100.0", "= 10.0"))
    assert run() == [2500, 10]


def _start(folder: Path, run: str, cache: Path) -> subprocess.Popen[str]:
    arguments = [*COMMAND, "a.parquet", "-o", run, "--capacity-tokens", "6"]
    variables, pipe = environment(REPLAY_CACHE_DIR=str(cache)), subprocess.PIPE
    return subprocess.Popen(
        arguments, cwd=folder, env=variables, stdout=pipe, stderr=pipe, text=True
    )


def _errors(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    return errors


class Cold(NamedTuple):
    """Replays that start side by side without compiled kernels; each writes the run of its name."""

    folder: Path
    replays: dict[str, subprocess.Popen[str]]


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cold]:
    """Start two replays on one empty cache, and one that can't have any."""
    folder = tmp_path_factory.mktemp("cold")
    write_tokens(folder / "a.parquet", SMALL)
    (folder / "file").touch()
    caches = {"one": folder / "cache", "two": folder / "cache", "none": folder / "file" / "cache"}
    replays = {run: _start(folder, run, cache) for run, cache in caches.items()}
    yield Cold(folder, replays)
    for process in replays.values():
        process.kill()
        process.communicate()


def test_two_processes_on_an_empty_cache_both_come_out_right(cold: Cold) -> None:
    for run in ("one", "two"):
        assert "Traceback" not in _errors(cold.replays[run])
    with _start(cold.folder, "warm", cold.folder / "cache") as process:
        assert _errors(process) == ""
    runs = [parquet_bytes(cold.folder / run) for run in ("one", "two", "warm")]
    assert len(runs[0]) == 9
    assert runs[0] == runs[1] == runs[2]


def test_an_unwritable_cache_costs_one_warning_and_no_run(cold: Cold) -> None:
    errors = _errors(cold.replays["none"])
    assert errors.count("replay: no writable folder for compiled kernels") == 1
    assert errors.count("\n") == 1, "nothing but the warning: it does not compile only once"
    assert (cold.folder / "none" / "run.json").is_file()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Take away every variable that names a place for the cache."""
    for name in ("REPLAY_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_without_home_the_cache_stands_in_the_package(bare: pytest.MonkeyPatch) -> None:
    assert "HOME" not in os.environ
    assert kernel._cache_parents() == [PACKAGE / "__pycache__"]
    bare.setenv("HOME", "/home/me")
    beside = Path("/home/me/.cache/replay-pipeline")
    assert kernel._cache_parents() == [PACKAGE / "__pycache__", beside]
    bare.setenv("XDG_CACHE_HOME", "/cache")
    assert kernel._cache_parents()[1:] == [Path("/cache/replay-pipeline")]
    bare.setenv("REPLAY_CACHE_DIR", "/elsewhere")
    assert kernel._cache_parents() == [Path("/elsewhere")]
