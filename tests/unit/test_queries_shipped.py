"""The reports' SQL files, which a wheel carries inside the package."""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline.describe.statements import statements
from pipeline.report import list_reports
from pipeline.sql_files import queries_folder

ROOT = Path(__file__).parents[2]
QUERIES = {path.name for path in (ROOT / "queries").glob("*.sql")}
DESCRIBE = {f"describe/{path.name}" for path in (ROOT / "queries/describe").iterdir()}


def test_every_sql_file_is_a_report() -> None:
    assert {f"{report.name}.sql" for report in list_reports()} == QUERIES
    assert {path.name for path in queries_folder().glob("*.sql")} == QUERIES
    assert {f"describe/{statement.name}.sql" for statement in statements()} == DESCRIBE


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
        shipped = {name.removeprefix(inside) for name in names if name.startswith(inside)}
        assert shipped == QUERIES | DESCRIBE
        for name in shipped:
            assert archive.read(inside + name) == (ROOT / "queries" / name).read_bytes()
    assert "pipeline/templates/chatml.jinja" in names
    assert not [name for name in names if name.startswith(("tests/", "runs/"))]
    assert not [name for name in names if "__pycache__" in name]
