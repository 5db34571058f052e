"""Messages about single traces and the rules for their kernels."""

from collections.abc import Sequence
from typing import Final

from perfkit.base.formatting import duration, escape_unprintable, format_percent
from perfkit.base.step_numbers import numbered
from perfkit.records.facts import Words
from perfkit.records.kernel_rules import KernelRuleUse
from perfkit.records.rank import OTHER_NAMES

_MOST_LISTED: Final = 5
_LONGEST_PATTERN: Final = 60
_HOUR_NS: Final = 3600 * 10**9
_MESSAGES: Final = frozenset({"send", "recv"})
_REPAIRED: Final = "{count:,} {noun}{count:||s} {what}"
_DEVICE_SIGNS: Final = {"launches": "launches or copies of a device", "collectives": "collectives of a device"}


def _unknown_events(count: int, categories: Sequence[tuple[str, int]], more: int) -> str:
    listed = ", ".join(f"{name!r} ({number})" for name, number in categories)
    return f"{count} events of unknown categories were ignored: {listed}" + (f" and {more} more" if more else "")


def _timestamp_gap(gap_ns: int) -> str:
    return (
        f"{gap_ns / _HOUR_NS:,.1f} hours pass between two events, or within one device event: a timestamp may be "
        "corrupt, which would inflate its step"
    )


def _no_device_events(signs: Sequence[str], backend: str | None) -> str:
    seen = " and ".join(_DEVICE_SIGNS.get(sign, f"the backend {backend}") for sign in signs)
    return (
        f"no device activity, but {seen}: the device's events were not recorded or were lost, "
        "and the host's operators are shown as the work"
    )


def _possible_communication(
    name: str, kernels: int, other_names: int, ns: int, share: float, beside_communication: bool
) -> str:
    where = (
        "only communication shares the stream"
        if beside_communication
        else "the stream carries little else and runs beside the compute of others"
    )
    more = f" and {other_names} more {'name' if other_names == 1 else 'names'}" if other_names else ""
    subject, verb = ("kernel", "counts") if kernels == 1 and not other_names else ("kernels", "count")
    return (
        f"{kernels:,} {subject} {name}{more} ({duration(ns)}, {format_percent(share)} of kernel time) {verb} as "
        f"compute, but may be communication: perfkit does not know the name, and {where}; if it is communication, "
        "declare it with --kernel-rules"
    )


def _kernel_rules_unused(unused: Sequence[tuple[int, KernelRuleUse]]) -> str:
    listed = ", ".join(
        f"rule {number} ({_shortened(use.pattern)}) "
        + ("comes after rules that match its kernels" if use.matched_kernels else "matches no kernel")
        for number, use in unused[:_MOST_LISTED]
    )
    more = f", and {len(unused) - _MOST_LISTED} more" if len(unused) > _MOST_LISTED else ""
    return f"rules for kernels without effect: {listed}{more}"


def _shortened(pattern: str) -> str:
    shown = escape_unprintable(pattern)
    return shown if len(shown) <= _LONGEST_PATTERN else f"{shown[:_LONGEST_PATTERN]}…"


def _collective_sizes_unmatched(unmatched: int, of: int, operators: Sequence[str]) -> str:
    why = (
        "torch's record of collectives has no sends and receives on the CPU"
        if _MESSAGES.issuperset(operators)
        else "the run's record of collectives lacks them (torch keeps the last TORCH_FR_BUFFER_SIZE of them) or does "
        "not match the trace"
    )
    return f"the message sizes of {unmatched} of {of} collectives ({', '.join(operators)}) are unknown: {why}"


_SOURCES: Final[dict[str, str]] = {
    "optimizer": "a step ends with the optimizer's",
    "loader": "a step begins with each batch of the loader",
    "trace": "the whole trace counts as one step, start-up included",
}


def _no_steps(marker: str | None, source: str) -> str:
    what = f"annotation matches --step-marker {marker!r}" if marker else "ProfilerStep annotation"
    return f"no {what}: {_SOURCES[source]}"


def _no_marked_loading(marker: str, functions: bool) -> str:
    recorded = "" if functions else ", and the trace has no functions: those are recorded by --with-stack"
    return f"no annotation or function of the thread that trains matches --data-marker {marker!r}{recorded}"


def _steps_cut(steps: int, analysed: int, quantiles_ns: Sequence[float], longest: int) -> str:
    least, low, middle, high, most = map(duration, quantiles_ns)
    return (
        f"of {steps:,} steps the first {analysed:,} were analysed, without the work of later ones; all steps take "
        f"{least} to {most} (5 %: {low}, median: {middle}, 95 %: {high}), the longest is step {numbered(longest)}"
    )


TRACES: Final[Words] = {
    "not_a_trace": "{error}",
    "unreadable_trace": "{error}",
    "worker_lost": "{path}: not analysed: {error}",
    "subject_failed": "{error}",
    "damaged_trace": "{damage}",
    "damaged_header": "{damage}",
    "skipped_events": _REPAIRED,
    "repaired_events": _REPAIRED,
    "unknown_events": _unknown_events,
    "timestamp_gap": _timestamp_gap,
    "no_host_operators": "no host operators: collectives are identified by kernel name only",
    "no_device_events": _no_device_events,
    "names_cut": (
        "{names:,} names of kernels and operators: the {listed:,} with the most time are listed, the other {others:,} "
        f"({{share:tenths}} of the time) are summed up as '{OTHER_NAMES}'"
    ),
    "possible_communication": _possible_communication,
    "kernel_rules_unused": _kernel_rules_unused,
    "graphs_hide_operators": (
        "{share:tenths} of the device's time is work of graphs ({launches:,} launch{launches:||es}): the trace does "
        "not contain which operator, module or line their kernels come from; steps without graphs do"
    ),
    "compilation_hides_operators": (
        "{share:tenths} of the time of operators is fused code of torch.compile, which has no events on the CPU: its "
        "operators and modules are not in the trace; those of steps without it are"
    ),
    "launches_missing": (
        "{activities:,} of {of:,} device activities ({share:tenths} of their time) have no launch in the trace: they "
        "count for the step in which they began; which operator they belong to, and what the device waited for before "
        "them, is unknown"
    ),
    "kernels_lost/some": (
        "{launches:,} of {of:,} launched kernels are not in the trace: {lossy:,} of {steps:,} steps lost some, and "
        "only step{judged:||s} {judged:ranges} {judged:|is|are} analysed, without a loss"
    ),
    "kernels_lost/all": (
        "{launches:,} of {of:,} launched kernels are not in the trace, and each step lost some: compute is too short, "
        "and idle time too long"
    ),
    "impossible_times": (
        "{activities:,} of {of:,} device activities start before their launch, or contradict the order of their "
        "stream: {removed_ns:duration} of them cannot be, and {activities:|is|are} left out"
    ),
    "device_clock_differs/behind": (
        "the device's clock is behind the host's: work begins up to {ns:duration} before its launch; all times of the "
        "device were moved by that"
    ),
    "device_clock_differs/ahead": (
        "the device's clock is ahead of the host's: no work begins within {ns:duration} of its launch, not even on an "
        "idle device; all times of the device were moved by that"
    ),
    "device_clock_differs/drifts": (
        "the device's clock drifts by {ns:duration} against the host's: from launch to work on an idle device takes so "
        "much longer at one end of the recording than at the other; no time was moved for that"
    ),
    "collective_sizes_unmatched": _collective_sizes_unmatched,
    "no_steps": _no_steps,
    "steps_of_device": "annotations of the device mark the steps: those of the host are not in the trace",
    "time_between_steps": (
        "{ns:duration} ({share:percent} of the recorded time) lie between the steps that --step-marker marks"
    ),
    "no_marked_loading": _no_marked_loading,
    "steps_cut": _steps_cut,
    "repeated_steps": "step numbers start again {restarts:|once|{restarts} times}: 2:3 is step 3 of the second series",
    "steps_missing": (
        "{missing:,} step number{missing:||s} between the first and the last {missing:|has|have} no annotation: such a "
        "step counts for the one before it, which it makes too long"
    ),
    "steps_without_device_work": "{idle} of {steps} steps {idle:|has|have} no device activity",
    "work_before_steps": ("{activities} device activities were launched before the first step and belong to no step"),
}
