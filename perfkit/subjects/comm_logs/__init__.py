"""What the logs of NCCL, RCCL and oneCCL tell."""

from typing import Final

from perfkit.engine.subject import Subject

SUBJECT: Final = Subject(tables="perfkit.subjects.comm_logs.tables:tables")
