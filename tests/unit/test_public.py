"""What `import perfkit` offers, and what it costs."""

import subprocess
import sys
from pathlib import Path

import perfkit
from perfkit.errors import PerfkitError
from perfkit.schema.report import Report


def test_exported_names() -> None:
    functions = ["analyze", "compare", "history", "profile"]
    assert perfkit.__all__ == ["PerfkitError", "ProfilerOptions", "Report", "RunManifest", "__version__", *functions]
    assert perfkit.__all__ == sorted(perfkit.__all__)
    assert set(perfkit.__all__) <= set(dir(perfkit))
    assert perfkit.Report is Report
    assert perfkit.PerfkitError is PerfkitError
    assert not hasattr(perfkit, "nothing")


def test_import_is_cheap() -> None:
    script = "import sys, perfkit; print(*sorted(m for m in sys.modules if m.split('.')[0] in sys.argv[1:]))"
    heavy = ["torch", "pandas", "numpy", "msgspec", "rich", "typer"]
    done = subprocess.run(
        [sys.executable, "-c", script, *heavy], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == []


def test_profile_is_there() -> None:
    assert callable(perfkit.profile)


def test_analyze_returns_records_and_frames(real_traces: Path) -> None:
    report = perfkit.analyze(real_traces / "gpu-dlrm-2of128")
    assert isinstance(report, Report)
    steps = report.tables().steps
    assert steps["step"].tolist() == [551, 552, 551, 552]
    exposed = steps.filter(regex="^exposed_").sum(axis=1)
    assert (exposed == steps["wall_ns"]).all()
