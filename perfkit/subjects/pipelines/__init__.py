"""Pipelines: what their stages compute, and their bubbles."""

from typing import Final

from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(
    rank={"pipeline": lambda trace: trace.pipeline_actions},
    run={"pipelines": lambda run: run.pipelines},
)
