"""What the logs of NCCL, RCCL and oneCCL tell."""

from typing import Final

from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject()
