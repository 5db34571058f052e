"""Writes a comparison for CI systems: JUnit XML, and the JSON of github-action-benchmark."""

import json
import xml.etree.ElementTree as ET
from typing import TextIO

from perfkit.base.formatting import escape_unprintable
from perfkit.records.comparison import Change, Comparison, GateResult


def write_junit(report: Comparison, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all gates
    """Write one test case per gate; an undecided gate is an error."""
    states = [gate.state for gate in report.gates]
    counts = {"tests": len(states), "failures": states.count("failed"), "errors": states.count("not_evaluated")}
    suite = ET.Element("testsuite", {"name": "perfkit", **{name: str(count) for name, count in counts.items()}})
    for gate in report.gates:
        _case(suite, gate)
    ET.indent(suite)
    stream.write('<?xml version="1.0" encoding="utf-8"?>\n')
    stream.write(ET.tostring(suite, encoding="unicode") + "\n")


def _case(suite: ET.Element, gate: GateResult) -> None:
    # Control characters, which XML cannot contain, are escaped.
    case = ET.SubElement(suite, "testcase", {"classname": "perfkit.gates", "name": escape_unprintable(gate.expression)})
    text = escape_unprintable(gate.message)
    if gate.state == "passed":
        ET.SubElement(case, "system-out").text = text
    else:
        ET.SubElement(case, "failure" if gate.state == "failed" else "error", {"message": text})


def write_benchmark(report: Comparison, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  a fixed set
    """Write the times after the change, in github-action-benchmark's format `customSmallerIsBetter`."""
    rows = [_entry(change) for change in report.changes if change.kind in ("run", "category", "loading")]
    stream.write(json.dumps([row for row in rows if row], indent=2) + "\n")


def _entry(change: Change) -> dict[str, object] | None:
    if change.unit != "ns" or change.after is None:
        return None
    entry: dict[str, object] = {"name": change.name, "unit": "ms", "value": change.after / 1e6}
    if change.interval and change.before:
        half = (change.interval[1] - change.interval[0]) / 2 * change.before / 1e6
        entry["range"] = f"± {half:.3g}"
    return entry
