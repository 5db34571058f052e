"""Data loading: how long ranks wait for batches, and why."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.subjects.input.waits import explain_loading

SUBJECT: Final = Subject(
    tables="perfkit.subjects.input.tables:tables",
    losses="perfkit.subjects.input.losses:LOSSES",
    rank={
        "loading": lambda trace: explain_loading(
            trace.events, trace.names, trace.steps, trace.header.perfkit.fetches if trace.header.perfkit else None
        )
    },
    run={"data_loading": lambda run: run.data_loading},
)
