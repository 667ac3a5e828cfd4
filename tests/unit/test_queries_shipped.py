"""The reports' SQL files, which a wheel carries inside the package."""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline.report import list_reports
from pipeline.report.reports import queries_folder

ROOT = Path(__file__).parents[2]
QUERIES = {path.name for path in (ROOT / "queries").glob("*.sql")}


def test_every_sql_file_is_a_report() -> None:
    assert {f"{report.name}.sql" for report in list_reports()} == QUERIES
    assert {path.name for path in queries_folder().glob("*.sql")} == QUERIES


def test_a_wheel_has_the_queries_and_the_chat_template_inside_the_package(tmp_path: Path) -> None:
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("no hatchling: pip install hatchling")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    options = ["--disable-pip-version-check", "-w", str(tmp_path), str(ROOT)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        inside = "pipeline/queries/"
        assert {name.removeprefix(inside) for name in names if name.startswith(inside)} == QUERIES
        for name in QUERIES:
            assert archive.read(inside + name) == (ROOT / "queries" / name).read_bytes()
    assert "pipeline/tokenize/chatml.jinja" in names
    assert not [name for name in names if name.startswith(("tests/", "runs/"))]
    assert not [name for name in names if "__pycache__" in name]
