"""What `import perfkit` offers, and what it costs."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit import errors
from perfkit.records.report import Report
from tests.support.processes.launching import LIMIT_S

FUNCTIONS = [
    *("analyze", "compare", "data_loading", "history", "load_report", "merge", "monitor"),
    *("plan", "predict", "profile", "start", "step", "steps"),
]


def test_exported_names() -> None:
    assert [name for name in perfkit.__all__ if name[0].islower()] == FUNCTIONS
    assert perfkit.__all__ == sorted(perfkit.__all__)
    assert set(perfkit.__all__) - {"__version__"} == set(perfkit._LAZY)
    assert set(perfkit.__all__) <= set(dir(perfkit))
    assert perfkit.Report is Report
    assert not hasattr(perfkit, "nothing")


def test_every_name_can_be_imported_and_is_documented() -> None:
    for name in set(perfkit.__all__) - {"__version__"}:
        assert inspect.getdoc(getattr(perfkit, name)), name


def test_type_checkers_see_every_name() -> None:
    source = Path(str(perfkit.__file__)).read_text(encoding="utf-8")
    typed = {
        alias.asname for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert set(perfkit.__all__) - {"__version__"} <= typed
    assert (Path(str(perfkit.__file__)).parent / "py.typed").exists()


def test_the_whole_tree_of_errors_is_exported() -> None:
    tree = {
        name
        for name, found in vars(errors).items()
        if inspect.isclass(found) and issubclass(found, errors.PerfkitError) and found.__module__ == errors.__name__
    }
    assert tree <= set(perfkit.__all__)
    assert all(name in str(errors.__doc__) for name in tree)


def test_import_is_cheap() -> None:
    script = "import sys, perfkit; print(*sorted(m for m in sys.modules if m.split('.')[0] in sys.argv[1:]))"
    heavy = ["torch", "pandas", "numpy", "msgspec", "rich", "typer"]
    done = subprocess.run(
        [sys.executable, "-c", script, *heavy], capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    assert done.stdout.split() == []


def test_analyze_returns_records_and_frames(real_traces: Path) -> None:
    report = perfkit.analyze(real_traces / "gpu-dlrm-2of128")
    assert isinstance(report, Report)
    steps = report.tables().steps
    assert steps["step"].tolist() == [551, 552, 551, 552]
    exposed = steps.filter(regex="^exposed_").sum(axis=1)
    assert (exposed == steps["wall_ns"]).all()


@pytest.mark.parametrize("kind", [str, Path])
def test_merge_takes_paths_as_text(real_traces: Path, tmp_path: Path, kind: type) -> None:
    merged = perfkit.merge(kind(real_traces / "gpu-dlrm-2of128"), kind(tmp_path / "all.pftrace"))
    assert (tmp_path / "all.pftrace").stat().st_size == merged.bytes


@pytest.mark.parametrize("function", [perfkit.profile, perfkit.monitor, perfkit.start])
def test_every_option_of_an_own_loop_is_described(function: Any) -> None:
    assert "hang_after: " in function.__doc__
    assert ": None" not in function.__doc__
