"""What idle time is spent on, in words, and what to do about it."""

import re
from collections.abc import Sequence
from typing import Final

from perfkit.base.formatting import shell_word
from perfkit.records.facts import Words
from perfkit.report.wording.ledger import call

_LAUNCH_WORDS: Final = {
    "compile_option": "--compile",
    "larger_batch": "a larger batch",
    "torch_compile": "torch.compile",
    "graphs": "CUDA graphs",
    "more_graphs": "CUDA graphs for more of the step",
}

_PLAIN: Final = re.compile(r"[\w :#-]+")
"""Names that are regular expressions for themselves."""


def _fewer_launches(ways: Sequence[str]) -> str:
    *first, last = [_LAUNCH_WORDS[way] for way in ways]
    use = f"{', '.join(first)}{' or ' if first else ''}{last}"
    return f"use {use}: fewer launches for the same work"


def _mark_loading(name: str) -> str:
    function = name.rpartition("): ")[2]
    pattern = function if _PLAIN.fullmatch(function) else re.escape(function)
    return f"; if it loads data, see the answer with --data-marker {shell_word(pattern)}"


SENTENCES: Final[Words] = {
    "named": "{name}",
    "devices_in_turns": "{devices} devices take turns",
    "devices_unequal": "device {device} works {times:.2g} times as long as the mean",
}

REMEDIES: Final[Words] = {
    "copy_asynchronously": "copy from pinned memory with non_blocking=True, and read results back only in some steps",
    "synchronise_less_often": (
        "do not wait for the device in every step: read values (.item(), .cpu(), print) only in some, or later"
    ),
    "fused_optimizer": "use a fused optimizer (fused=True): it updates all parameters in a few launches",
    "fewer_launches": _fewer_launches,
    "collect_garbage": "collect garbage between steps, or rarely (gc.disable, gc.freeze)",
    "save_less_often": "save less often, or while training goes on (torch.distributed.checkpoint.async_save)",
    "print_less_often": "print and log less often",
    "check_operator": "check what this operator works on: tensors on the CPU, or many small ones",
    "if_first_call": "record more warm-up steps if it is the operator's first call; else ",
    "find_host_work": "find what the host does between launches",
    "find_between_operators": "find what runs on the host between operators",
    "speed_up_function": lambda function: (
        f"speed up {call(function)}, do it less often, or in another thread or process"
    ),
    "record_stacks": "; {own:|--with-stack|with_stack=True} names functions",
    "warm_up_launches": "record more warm-up steps: a first launch loads the kernel's code",
    "warm_up_allocator": "record more warm-up steps: the allocator keeps what it once got from the device",
    "less_compilation": "record more warm-up steps; if it goes on, find what recompiles (TORCH_LOGS=recompiles)",
    "less_memory": "use less memory{how}: the allocator gives memory back to get other",
    "keep_cached_memory": "call {call}() less often: to get the memory from the device again takes long",
    "expandable_segments": ", or {variable}=expandable_segments:True",
    "check_device": "check what else uses the device, and whether the trace lacks kernels",
    "check_stream": "check whether these kernels must wait for the other stream",
    "larger_kernels": "use fewer, larger kernels",
    "find_thread_wait": "find what the thread that trains waits for",
    "find_wait_of": lambda name: f"find what {call(name)} waits for, or do it in another thread",
    "less_profiler": "record less (no stacks, no shapes), or judge by steps without the profiler",
    "overlap_devices": (
        "let devices work at once: split the batch into micro-batches that follow each other (a pipeline), or train on "
        "each with DistributedDataParallel"
    ),
    "balance_devices": "give each device as much work, such as by DistributedDataParallel with a process per device",
    "less_other_device": "let devices work at once, and give each as much work",
    "record_host": (
        "record the host too (ProfilerActivity.CPU): without launches nothing tells what the device waited for"
    ),
    "record_fully": "record rank {rank} fully, too: --trace-ranks",
    "annotate": "annotate the program (record_function)",
    "inspect_gaps": "inspect the gaps in the trace: launches, Python, synchronisation",
    "find_hotspot": "re-run with --pyinstrument to find the Python hotspot",
    "mark_loading": _mark_loading,
}
