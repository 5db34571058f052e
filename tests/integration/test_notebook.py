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


def run(notebook: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient

    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    limits: dict[str, Any] = {"timeout": LIMIT_S, "startup_timeout": LIMIT_S, "iopub_timeout": LIMIT_S}
    NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, **limits).execute()


@pytest.mark.slow  # starts a kernel
@pytest.mark.filterwarnings("default::DeprecationWarning")  # Jupyter's own, which change with Python
def test_print_and_the_last_line_show_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbformat.v4 import new_code_cell, new_notebook

    samples = [str(ROOT / "traces" / name) for name in ("sample-hdf5", "sample-memory")]
    lines = (f"import perfkit; report = perfkit.analyze(*{samples})", "print(report)", "report")
    notebook = new_notebook(cells=[new_code_cell(line) for line in lines])  # type: ignore[no-untyped-call]
    run(notebook, tmp_path, tmp_path, monkeypatch)
    (printed,), (last,) = (cell.outputs for cell in notebook.cells[1:])
    assert printed.output_type == "stream"
    for text in (printed.text, last.data["text/plain"]):
        assert text.startswith("sample-hdf5 ──")
        assert "By source: otherwise identical runs" in text
        assert len(text) < 3_000
    assert "<strong>sample-hdf5</strong>" in last.data["text/html"]


@pytest.mark.slow  # starts a kernel and draws every figure
@pytest.mark.filterwarnings("default::DeprecationWarning")  # Jupyter's own, which change with Python
def test_the_notebook_runs_and_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat  # here: every worker of pytest imports this file, and Jupyter takes seconds

    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    run(notebook, NOTEBOOK.parent, tmp_path, monkeypatch)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output for output in shown if output["output_type"] == "stream"] == []  # no warnings
    assert [kind for output in shown if (kind := _kind(output["data"])) != "html"] == ["figure"] * 3
    whole = "".join(output["data"].get("text/html", "") for output in shown if _kind(output["data"]) == "html")
    assert "Where the step&#39;s time goes" in whole
    assert "not known from 1 run before and 1 after" in whole
    assert "<script" not in whole


def _kind(data: dict[str, Any]) -> str:
    return "figure" if "application/vnd.plotly.v1+json" in data else "html" if "text/html" in data else "text"
