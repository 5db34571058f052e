"""Summarises oneCCL's logs, and finds what they show to be slow or wrong (metrics.md section 25)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.records.common import Observation
from perfkit.records.per_run.comm_logs import OneCclLogs, OneCclMessage
from perfkit.subjects.comm_logs.summarize import MOST_ROWS, count_logged
from perfkit.trace.comm_logs.one_ccl import OneCclFacts

_MOST_FILES: Final = 5
_SOCKET_PROVIDERS: Final = ("tcp", "sockets", "udp")
_PCIE: Final = "topology recognition shows PCIe connection"


def summarize_one_ccl(facts: OneCclFacts, files: Sequence[str]) -> OneCclLogs:
    """Return what logs contain; `files` are those with lines of oneCCL's."""
    return OneCclLogs(
        files=list(files[:_MOST_FILES]),
        file_count=len(files),
        lines=facts.lines,
        garbled_lines=facts.garbled,
        left_out=facts.left_out,
        processes=len(facts.processes),
        versions=count_logged(facts.versions, MOST_ROWS),
        providers=count_logged(facts.providers, MOST_ROWS),
        variables=count_logged(facts.variables, MOST_ROWS),
        warnings=_messages(facts.warnings),
        warning_count=facts.warning_count,
        errors=_messages(facts.errors),
        error_count=facts.error_count,
    )


def _messages(counts: Counter[str]) -> list[OneCclMessage]:
    return [OneCclMessage(text=text, count=count) for text, count in counts.most_common(MOST_ROWS)]


def find_one_ccl_findings(logs: OneCclLogs, hosts: int) -> Iterator[Observation]:
    """Yield findings about what logs contain.

    Args:
        logs: what they contain.
        hosts: of the run: within one host the provider hardly matters.
    """
    slow = [row for row in logs.providers if row.name == "provider" and _is_sockets(row.value)]
    others = [row for row in logs.providers if row.name == "provider" and not _is_sockets(row.value)]
    if slow and hosts > 1:
        values = {"providers": [row.value for row in slow], "others": [row.value for row in others]}
        yield Observation("one_ccl_sockets", values)
    if pcie := next((row for row in logs.warnings if row.text.startswith(_PCIE)), None):
        yield Observation("one_ccl_pcie", {"text": pcie.text})
    others_count = logs.warning_count - (pcie.count if pcie else 0)
    if others_count:
        first = next(row for row in logs.warnings if row is not pcie)
        yield Observation("one_ccl_warnings", {"count": others_count, "first": first.text})
    if logs.errors:
        yield Observation("one_ccl_errors", {"count": logs.error_count, "first": logs.errors[0].text})


def _is_sockets(provider: str) -> bool:
    """Return whether a provider of libfabric, such as `tcp;ofi_rxm`, sends over sockets."""
    return provider.partition(";")[0].strip() in _SOCKET_PROVIDERS
