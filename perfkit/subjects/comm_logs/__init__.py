"""What the logs of NCCL, RCCL and oneCCL tell."""

from typing import Final

from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(tables="perfkit.report.content.comm_logs:tables")
