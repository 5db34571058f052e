"""Pipelines: what their stages compute, and their bubbles."""

from typing import Final

from perfkit.engine.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.subjects.pipelines.tables:tables",
    losses="perfkit.subjects.pipelines.losses:LOSSES",
    rank={"pipeline": lambda trace: trace.pipeline_actions},
    run={"pipelines": lambda run: run.pipelines},
)
