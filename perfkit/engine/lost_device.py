"""Recognise traces of programs that used a device whose activity was not recorded.

Without it, the host's operators look like the work.
"""

import re
from typing import Final

from perfkit.accelerators import device_backends
from perfkit.records.common import Observation
from perfkit.trace.events import EventKind, Events, RankTrace

_STARTS_WORK: Final = re.compile(r"launch(?!hostfunc)|enqueue|mem_?cpy|mem_?copy|memorycopy|mem_?set|memoryfill", re.I)
"""Names of calls that give a device work: cudaLaunchKernel, hipMemcpyAsync, urEnqueueKernelLaunch and the like. Every
other call also occurs where no work follows: torch asks for devices and their properties on import."""


def lost_device(trace: RankTrace) -> list[Observation]:
    """Return a finding for a trace without device activity if the program used a device."""
    signs = {
        "launches": _starts_work(trace.events),
        "backend": _is_device_backend(trace.header.backend or ""),
        "collectives": _has_device_collective(trace.events),
    }
    seen = [sign for sign, there in signs.items() if there]
    return [Observation("no_device_events", {"signs": seen, "backend": trace.header.backend})] if seen else []


def _starts_work(events: Events) -> bool:
    names = events.names_of(events.rows(EventKind.LAUNCH))
    return bool(len(names) and events.shapes.containing(_STARTS_WORK)[names].any())


def _is_device_backend(backend: str) -> bool:
    """Return whether a backend runs on devices only; torch writes it with or without the device's type."""
    return re.fullmatch(rf"(\w+:)?({_backends()})", backend) is not None


def _has_device_collective(events: Events) -> bool:
    pattern = re.compile(rf"record_param_comms$|({_backends()}):")
    return bool(events.shapes.starting_with(pattern).any())


def _backends() -> str:
    return "|".join(map(re.escape, device_backends()))
