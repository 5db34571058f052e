"""Qualified names of the modules whose calls a trace contains (`with_stack`), in the header of the trace.

torch's profiler calls a module by its class and a running number. Which module that was only the recording process
knows, and only once the profiler has stopped; perfkit adds it then::

    "perfkitModules": [["Attention_3", ["layers.0.attn"]], ...]

A module that is held in several places has several names; the name of the outermost one is empty.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

MODULES_KEY: Final = "perfkitModules"
MOST_MODULES: Final = 1 << 14
"""Most modules that are recorded or read; others keep their class and number."""
MOST_NAMES: Final = 4
"""Most names of one module."""
LONGEST_NAME: Final = 200
"""Characters of a name; longer ones are left out."""

ModuleNames = Mapping[str, tuple[str, ...]]
"""The names of each module, by its class and number in the trace."""


def encode_modules(names: ModuleNames) -> bytes:
    return msgspec.json.encode([(instance, list(of)) for instance, of in names.items()])


def decode_modules(value: bytes) -> dict[str, tuple[str, ...]]:
    """Return the names that a header has; none if another program uses the key for something else."""
    try:
        rows = msgspec.json.decode(value, type=list[tuple[str, list[str]]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    found = {}
    for instance, names in rows[:MOST_MODULES]:
        kept = tuple(name for name in names[:MOST_NAMES] if len(name) <= LONGEST_NAME)
        if kept:
            found[instance] = kept
    return found


def shown_module(instance: str, names: Iterable[str]) -> str:
    """Return what a module is called: `layers.0.attn (Attention)`, without a name its class and number.

    The several names of a module are joined by `=`; the outermost module is called by its class.
    """
    known = [name for name in names if name]
    if known:
        return f"{' = '.join(known)} ({class_of(instance)})"
    return class_of(instance) if list(names) else instance


def shown_class(instance: str, names: Iterable[str]) -> str:
    """Return what modules that differ in numbers only are called: `layers.*.attn (Attention)`, or their class."""
    patterns = dict.fromkeys(_NUMBER.sub(r"\1*", name) for name in names if name)
    return f"{' = '.join(patterns)} ({class_of(instance)})" if patterns else class_of(instance)


def class_of(instance: str) -> str:
    """Return the class of a module by its class and number."""
    return instance.rpartition("_")[0] or instance


_NUMBER: Final = re.compile(r"(^|\.)[0-9]+(?=\.|$)")
