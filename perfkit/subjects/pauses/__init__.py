"""Checkpoints, evaluations and logging, which are no part of the steps."""

from typing import Final

from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(tables="perfkit.report.content.pauses:tables", run={"pauses": lambda run: run.pauses})
