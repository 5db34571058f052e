"""Checkpoints, evaluations and logging, which are no part of the steps."""

from typing import Final

from perfkit.engine.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.subjects.pauses.tables:tables",
    losses="perfkit.subjects.pauses.losses:LOSSES",
    run={"pauses": lambda run: run.pauses},
)
