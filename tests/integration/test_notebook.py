"""The example notebook, run in a kernel of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.launching import LIMIT_S, ROOT

NOTEBOOK = ROOT / "reports" / "example.ipynb"


def test_the_notebook_holds_no_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.slow  # starts a kernel and draws every figure
@pytest.mark.filterwarnings("default::DeprecationWarning")  # Jupyter's own, which change with Python
def test_the_notebook_runs_and_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat  # here: every worker of pytest imports this file, and Jupyter takes seconds
    from nbclient import NotebookClient

    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    limits: dict[str, Any] = {"timeout": LIMIT_S, "startup_timeout": LIMIT_S, "iopub_timeout": LIMIT_S}
    client = NotebookClient(notebook, resources=resources, **limits)
    client.execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output for output in shown if output["output_type"] == "stream"] == []  # no warnings
    assert [kind for output in shown if (kind := _kind(output["data"])) != "html"] == ["figure"] * 3
    whole = "".join(output["data"].get("text/html", "") for output in shown if _kind(output["data"]) == "html")
    assert "Where the step&#39;s time goes" in whole
    assert "too few runs to tell this from noise" in whole
    assert "<script" not in whole


def _kind(data: dict[str, Any]) -> str:
    return "figure" if "application/vnd.plotly.v1+json" in data else "html" if "text/html" in data else "text"
