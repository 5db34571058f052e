"""JSON Schema of the files that perfkit writes, described by the docstrings in `perfkit.records`."""

import ast
import inspect
from importlib.resources import files
from typing import Any

import msgspec

from perfkit.records.benchmark import COLLECTIVES_VERSION, INPUT_VERSION, CollectiveBenchmark, InputBenchmark
from perfkit.records.comparison import COMPARISON_VERSION, HISTORY_VERSION, Comparison, History
from perfkit.records.hang import DIAGNOSIS_VERSION, RANK_STATE_VERSION, Diagnosis, RankState
from perfkit.records.manifest import MANIFEST_VERSION, RunManifest
from perfkit.records.per_run.whatif import WHAT_IF_VERSION, WhatIf
from perfkit.records.plan import PLAN_VERSION, Plan
from perfkit.records.report import REPORT_VERSION, Report
from perfkit.records.sweep import SWEEP_ANSWER_VERSION, SWEEP_VERSION, Sweep, SweepAnswer
from perfkit.records.tools import DOCTOR_VERSION, EXTERNAL_TABLE_VERSION, DoctorReport, ExternalTable

RECORDS = {
    "report": (Report, REPORT_VERSION, "output of `perfkit analyze --json`"),
    "comparison": (Comparison, COMPARISON_VERSION, "output of `perfkit compare --json`"),
    "history": (History, HISTORY_VERSION, "output of `perfkit history --json`"),
    "collectives": (CollectiveBenchmark, COLLECTIVES_VERSION, "output of `perfkit collectives -o FILE.json`"),
    "input": (InputBenchmark, INPUT_VERSION, "output of `perfkit input -o FILE.json`"),
    "hta": (ExternalTable, EXTERNAL_TABLE_VERSION, "output of `perfkit hta -o FILE.json`"),
    "plan": (Plan, PLAN_VERSION, "output of `perfkit plan --json`"),
    "whatif": (WhatIf, WHAT_IF_VERSION, "output of `perfkit whatif --json`"),
    "doctor": (DoctorReport, DOCTOR_VERSION, "output of `perfkit doctor --json`"),
    "diagnosis": (Diagnosis, DIAGNOSIS_VERSION, "output of `perfkit diagnose --json`"),
    "hang": (RankState, RANK_STATE_VERSION, "rank<R>.hang.json in a run folder"),
    "sweep": (Sweep, SWEEP_VERSION, "sweep.json in the folder of a `perfkit sweep`"),
    "sweep-answer": (SweepAnswer, SWEEP_ANSWER_VERSION, "output of `perfkit sweep --json`"),
    "run": (RunManifest, MANIFEST_VERSION, "run.json in a run folder"),
}


def schema(record: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of one of `RECORDS`."""
    kind, version, description = RECORDS[record]
    generated = msgspec.json.schema(kind)
    for name, described in _descriptions().items():
        for field, text in described.items():
            generated["$defs"].get(name, {}).get("properties", {}).get(field, {})["description"] = text
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:perfkit:{record}:{version}",
        "title": f"perfkit {record}, version {version}: {description}",
        **generated,
    }


def _descriptions() -> dict[str, dict[str, str]]:
    """Return record -> field -> the docstring below the field in the source."""
    root = files("perfkit.records")
    folders = [root, *(folder for folder in root.iterdir() if folder.is_dir())]
    sources = [path for folder in folders for path in folder.iterdir() if path.name.endswith(".py")]
    nodes = [node for path in sources for node in ast.parse(path.read_text("utf-8")).body]
    return {
        node.name: {
            before.target.id: inspect.cleandoc(after.value.value)
            for before, after in zip(node.body, node.body[1:], strict=False)
            if isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        }
        for node in nodes
        if isinstance(node, ast.ClassDef)
    }
