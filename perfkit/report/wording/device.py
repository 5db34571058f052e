"""Copies, operators, pauses and options in words, and what to do about them."""

from typing import Final

from perfkit.records.facts import Words

SENTENCES: Final[Words] = {
    "fills": "fills of memory",
    "to_host": "to the host",
    "within_device": "within the device",
    "between_devices": "between devices",
    "from_pinned": "from the host's pinned memory",
    "from_host": "from the host",
    "float32_products": "{share:percent} is products in float32; {type} is up to {times:.3g} times as fast",
    "unfused_elementwise": "{share:percent} is {calls:,.0f} element-wise operators and copies",
    "mostly_in": ", mostly in {function}",
    "unaligned_products": "{share:percent} is products in half precision with sizes that are no multiple of {multiple}",
    "oversubscribed": "{host} is oversubscribed: {shared}{fall}",
    "efficiency_drops": ", and efficiency drops from {before:tenths} to {after:tenths}",
    "checkpoint_pauses": "checkpoints",
    "evaluation_pauses": "evaluations",
    "logging_pauses": "pauses for logging",
    "pauses": "{count} {noun}{caller} in {steps} steps{where} take {ns:duration} each, besides the steps{also}",
    "ranks_pause_too": " ({ranks:ranks} {ranks:|has|have} {noun}, too)",
    "computation_scaling": (
        "from {before} to {after} ranks, computation scaling costs {points:.0f} percentage points of global "
        "efficiency: the same work takes {times:.2f} times as much compute time"
    ),
    "fewer_threads": "; each rank has {threads} CPU threads instead of {before}",
    "smaller_batch": "; the batch per rank is {batch} instead of {before}",
    "slower_source": (
        "with input from {source} a step takes {ratio:.2f} times as long as from memory at {ranks} rank{ranks:||s} "
        "({ns:duration} against {memory_ns:duration})"
    ),
    "faster_option": (
        "with {option}={value} a step takes {ratio:.2f} times as long as with {other} at {ranks} rank{ranks:||s}"
    ),
}

REMEDIES: Final[Words] = {
    "fills": (
        "find what fills memory on the device: tensors of zeros that are overwritten, zero_grad(set_to_none=False)"
    ),
    "to_host": "read results back less often, or with non_blocking=True into pinned memory, and use them later",
    "within_device": "find what copies tensors on the device: contiguous(), clone(), cat, changes of layout or type",
    "between_devices": (
        "keep tensors on the device that uses them, or copy on another stream while something else is computed"
    ),
    "from_pinned": (
        "copy the next batch on another stream while this one is computed, or copy less: smaller types, transforms on "
        "the device"
    ),
    "from_host": "copy ahead, asynchronously and from pinned memory",
    "pin_memory": "use --pin-memory",
    "find_copies": "find what is copied, and copy it ahead, on another stream, or not at all",
    "allow_tf32": "allow TF32: torch.set_float32_matmul_precision('high')",
    "or_also": "; or ",
    "mixed_precision": "train in mixed precision (torch.autocast in {type}; --precision {type})",
    "copy_less": "copy and convert tensors less often (.to, .clone, .contiguous, .cpu): most of it is copies",
    "fuse": (
        "fuse them, so that intermediate results do not pass through memory: "
        "{own:|use --compile|torch.compile, or fused modules}"
    ),
    "pad_sizes": "pad the sizes (vocabulary, width, classes) to multiples of {multiple}, or better 64",
    "fewer_ranks": "use at most {ranks} rank{ranks:||s} on {host}, or more hosts",
    "use_threads": ("use {own:|--threads {threads}|torch.set_num_threads({threads}) or OMP_NUM_THREADS={threads}}"),
    "checkpoint_less_often": "save less often, or while training goes on (torch.distributed.checkpoint.async_save)",
    "checkpoint_async": "save less often, or less at a time: every checkpoint is asynchronous already",
    "evaluation_less_often": "evaluate less often, or on fewer samples",
    "logging_less_often": "log less often, or in another thread",
    "repeat_with_threads": "for a fair comparison, repeat {ranks} ranks with --threads {threads}",
    "weak_scaling": ("keep the batch per rank constant as ranks are added (weak scaling), if the training allows it"),
    "check_shared": "check what the ranks share: memory bandwidth, caches, power",
    "read_from_memory": "use batched reads or loader workers, or keep the data in memory",
    "use_option": "use {option}={value}, if the training allows it",
}
