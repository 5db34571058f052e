"""Data loading: how long ranks wait for batches, and why."""

from typing import Final

from perfkit.analysis.per_rank.loading.waits import explain_loading
from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.report.content.input:tables",
    rank={
        "loading": lambda trace: explain_loading(
            trace.events, trace.names, trace.steps, trace.header.perfkit.fetches if trace.header.perfkit else None
        )
    },
    run={"data_loading": lambda run: run.data_loading},
)
