"""Light traces made from recorded ones, as a light rank would have left them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from perfkit.record.recording.lane_rewriter import EVENT
from perfkit.record.recording.light_trace import write_light

_ORDER = ("ph", "cat", "name", "pid", "tid", "ts", "dur")


def lighten(trace: Path) -> None:
    """Replace a trace (`.json`) by its light one; one that is not as torch lays it out is laid out so before."""
    whole = trace.read_bytes()
    plain, light = trace.with_suffix(".whole"), trace.with_suffix(".light")
    plain.write_bytes(whole if EVENT in whole else _laid_out(json.loads(whole)))
    write_light(plain, light)
    trace.write_bytes(_marked(light.read_bytes()))
    plain.unlink()
    light.unlink()


def _laid_out(trace: Mapping[str, Any]) -> bytes:
    head = json.dumps({key: value for key, value in trace.items() if key != "traceEvents"})[:-1]
    events = ",".join(f"\n  {_event(event)}" for event in trace["traceEvents"])
    return f'{head}{", " * (len(head) > 1)}"traceEvents": [{events}\n  ],\n"traceName": "made"\n}}'.encode()


def _event(event: Mapping[str, Any]) -> str:
    keys: Iterable[str] = [*(key for key in _ORDER if key in event), *(key for key in event if key not in _ORDER)]
    return json.dumps({key: event[key] for key in keys})


def _marked(trace: bytes) -> bytes:
    """Return a trace whose header says that it is light."""
    head, events, rest = trace.partition(b'"traceEvents"')
    if b'"perfkit": {' in head:
        head = head.replace(b'"light":false,', b"").replace(b'"perfkit": {', b'"perfkit": {"light": true, ', 1)
    else:
        head = head.replace(b"{", b'{"perfkit": {"light": true}, ', 1)
    return head + events + rest
