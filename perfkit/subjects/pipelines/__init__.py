"""Pipelines: what their stages compute, and their bubbles."""

from typing import Final

from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.report.content.pipelines:tables",
    rank={"pipeline": lambda trace: trace.pipeline_actions},
    run={"pipelines": lambda run: run.pipelines},
)
