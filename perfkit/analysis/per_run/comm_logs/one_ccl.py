"""Summarises oneCCL's logs, and finds what they show to be slow or wrong (metrics.md section 25)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.analysis.per_run.comm_logs.logged_counts import count_logged
from perfkit.schema.common import Finding
from perfkit.schema.per_run.comm_logs import OneCclLogs, OneCclMessage
from perfkit.trace.comm_logs.one_ccl import OneCclFacts

_MOST: Final = 100
"""Rows of each list."""
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
        versions=count_logged(facts.versions, _MOST),
        providers=count_logged(facts.providers, _MOST),
        variables=count_logged(facts.variables, _MOST),
        warnings=_messages(facts.warnings),
        warning_count=facts.warning_count,
        errors=_messages(facts.errors),
        error_count=facts.error_count,
    )


def _messages(counts: Counter[str]) -> list[OneCclMessage]:
    return [OneCclMessage(text=text, count=count) for text, count in counts.most_common(_MOST)]


def find_one_ccl_findings(logs: OneCclLogs, hosts: int) -> Iterator[Finding]:
    """Yield findings about what logs contain.

    Args:
        logs: what they contain.
        hosts: of the run: within one host the provider hardly matters.
    """
    slow = [row for row in logs.providers if row.name == "provider" and _is_sockets(row.value)]
    others = [row for row in logs.providers if row.name == "provider" and not _is_sockets(row.value)]
    if slow and hosts > 1:
        which = " and ".join(row.value for row in slow)
        some = f" (also logged: {', '.join(row.value for row in others)})" if others else ""
        message = (
            f"oneCCL exchanges data between hosts over sockets: libfabric's provider is {which}{some}; FI_PROVIDER "
            "chooses another"
        )
        yield Finding(code="one_ccl_sockets", severity="warning", message=message)
    if pcie := next((row for row in logs.warnings if row.text.startswith(_PCIE)), None):
        message = f"oneCCL found that devices are connected by PCIe, not by Xe Link: {pcie.text}"
        yield Finding(code="one_ccl_pcie", severity="info", message=message)
    others_count = logs.warning_count - (pcie.count if pcie else 0)
    if others_count:
        first = next(row for row in logs.warnings if row is not pcie)
        times = "once" if others_count == 1 else f"{others_count:,} times"
        message = f"oneCCL warned {times}, most often: {first.text}"
        yield Finding(code="one_ccl_warnings", severity="info", message=message)
    if logs.errors:
        times = "an error" if logs.error_count == 1 else f"{logs.error_count:,} errors"
        message = f"oneCCL logged {times}, most often: {logs.errors[0].text}"
        yield Finding(code="one_ccl_errors", severity="error", message=message)


def _is_sockets(provider: str) -> bool:
    """Return whether a provider of libfabric, such as `tcp;ofi_rxm`, sends over sockets."""
    return provider.partition(";")[0].strip() in _SOCKET_PROVIDERS
