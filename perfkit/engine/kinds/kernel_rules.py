"""Classify device kernels by name with one ordered table of rules; the first match wins (metrics.md section 2).

A user's rules come first, then those of the accelerators (`perfkit.accelerators`), then the table here, which has the
libraries that belong to no single vendor. A kernel that no rule matches is classified by what launched it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from perfkit.accelerators import accelerators
from perfkit.records.common import Observation
from perfkit.records.kernel_rules import KERNEL_KINDS, KernelKind, KernelRule, KernelRuleUse
from perfkit.records.per_rank.work import KernelClass
from perfkit.trace.intervals import Ints
from perfkit.trace.name_matching import NameShapes, starting_with, with_zeros

NO_RULE: Final = -1
"""Code of a name that no rule matches; the others are indices into `KERNEL_KINDS`."""
KIND_CODE: Final[dict[KernelKind, int]] = {kind: code for code, kind in enumerate(KERNEL_KINDS)}

# Possessive quantifiers: a name that fails is not tried again letter by letter.
_EXPERTS: Final = r"(\w++::)*(deep_ep|dpsk::ep|internode(_ll)?|intranode)::"
"""DeepEP under its own namespaces, and in forks that only changed the outermost one."""

KERNEL_RULES: Final[tuple[KernelRule, ...]] = (
    # Exceptions from the namespaces below come first.
    KernelRule(r"(\w++::)*get_dispatch_layout$", "compute", "DeepEP, layout.cu: counts tokens per rank locally"),
    KernelRule(
        r"(\w++::)*hybrid_ep::\w*(scan|permute|update_expected|metadata)",
        "compute",
        "DeepEP's hybrid-ep branch, hybrid_ep_backend.cuh: local preprocessing of the routing map",
    ),
    KernelRule(
        r"(\w++::)*(dispatch_copy_epilogue|combine_reduce_epilogue|dispatch_deterministic_prologue)_impl$",
        "compute",
        "DeepEP 2, deep_ep/include/deep_ep/impls: copies and sums what has arrived, locally",
    ),
    KernelRule(
        r"(cached_)?notify_(dispatch|combine)$|cached_notify$|hybrid_(dispatch|combine)_impl$",
        "communication",
        "DeepEP, csrc/kernels/{intranode,internode}.cu, deep_ep/impls: their own names, where a trace has no namespace",
    ),
    KernelRule(
        _EXPERTS,
        "communication",
        "DeepEP, csrc/kernels/{intranode,internode}*.cu: dispatch, combine, notify",
    ),
    KernelRule(
        r"(\w++::)*hybrid_ep::",
        "communication",
        "DeepEP's hybrid-ep branch, hybrid_ep_backend.cuh: {dispatch,combine,device_sync}_kernel",
    ),
    KernelRule(
        r"Ep(Dispatch|Combine)", "communication", "ROCm mori, src/ops/dispatch_combine: Ep{Dispatch,Combine}*Kernel"
    ),
    KernelRule(
        r"moeA2A(Dispatch|Combine)Kernel|moeAllToAllKernel",
        "communication",
        "TensorRT-LLM, FlashInfer, moeAlltoAllKernels.cu (moeA2APrepare* and moeA2ASanitize* are local), and "
        "fusedMoeCommKernels.cu: moeAllToAllKernel",
    ),
    KernelRule(
        r"a2a_(dispatch|combine)_(send|recv)_kernel",
        "communication",
        "pplx-garden, p2p-all-to-all/a2a-kernels/src/a2a",
    ),
    KernelRule(r"lowPrecision\w*AllReduce", "communication", "TensorRT-LLM, customLowPrecisionAllReduceKernels.cu"),
    KernelRule(r"mscclpp(::|_)", "communication", "MSCCL++, its namespace"),
    KernelRule(r"mcclKernel", "communication", "MCCL of Moore Threads, as NCCL names its kernels"),
    KernelRule(r"cncl[A-Z_]", "communication", "CNCL of Cambricon, the prefix of its names"),
    KernelRule(r"cross_device_reduce_[12]stage", "communication", "vLLM, SGLang, AITER, custom_all_reduce.cuh"),
    KernelRule(r"allreduce_prototype_(one|two)shot", "communication", "quick reduce of AITER, vLLM, SGLang"),
    KernelRule(
        r"reduce_scatter_cross_device|aiter::allgather_(vec|lastdim|naive)",
        "communication",
        "AITER, csrc/include/custom_all_reduce.cuh",
    ),
    KernelRule(
        r"c10d::(symmetric_memory|intra_node_comm|(nv|roc|i)shmem_extension)::",
        "communication",
        "PyTorch, barriers, signals, all-reduce; symm_mem/nvshmem_extension.cu: exchangeSplitAndOffset*, allToAllV*",
    ),
    KernelRule(
        r"_?(one|two)_?shot_all_?reduce",
        "communication",
        "PyTorch, CUDASymmetricMemoryOps.cu; Triton kernels of Kraken, with a leading underscore",
    ),
    KernelRule(
        r"multimem_(one_shot_)?(all_reduce|reduce|all_gather|reduce_scatter)",
        "communication",
        "PyTorch, CUDASymmetricMemoryOps.cu, by NVLink multicast",
    ),
    KernelRule(
        r"(oneShot|twoShot|oneshot|twoshot|hybridCubeMesh)All[rR]educe",
        "communication",
        "PyTorch, intra_node_comm.cu; TensorRT-LLM, customAllReduceKernels.cu; FlashInfer",
    ),
    KernelRule(r"multiGpuBarrierKernel", "communication", "TensorRT-LLM, customAllReduceKernels.cu"),
    KernelRule(r"(meta::)?comms::pipes::", "communication", "torchcomms, comms/pipes/collectives: allToAllvKernel"),
    KernelRule(r"lamport_style_one_shot_all_reduce", "communication", "TensorRT-LLM, customAllReduceKernels.cu"),
    KernelRule(
        r"(moe\w*_)?allreduce_fusion_kernel", "communication", "FlashInfer, TensorRT-LLM, allReduceFusionKernels.cu"
    ),
    KernelRule(
        r"nvshmem(i|x|ix)?_|(nvshmem|rocshmem|ishmem)\w*::|rocshmem_|ishmemi?_|(k_)?aclshmem",
        "communication",
        "NVSHMEM, rocSHMEM, Intel SHMEM, Ascend's SHMEM, the prefixes of their names",
    ),
    KernelRule(
        r"\w+_on_stream_kernel(_warp|_block|_threadgroup)?$",
        "communication",
        "NVSHMEM, nvshmemi_h_to_d_coll_defs.cuh: {barrier,sync,broadcast,fcollect,…}_on_stream_kernel",
    ),
    KernelRule(r"k?userbuffers_", "communication", "Transformer Engine, userbuffers.cu"),
)
"""Kernels of libraries that belong to no single vendor, or to one without a row in `perfkit.accelerators`."""


@cache
def _builtin() -> tuple[KernelRule, ...]:
    rows = accelerators()
    return (
        *(KernelRule(pattern, "wait", row.title) for row in rows for pattern in row.wait_kernels),
        *(KernelRule(pattern, "memcpy", row.title) for row in rows for pattern in row.copy_kernels),
        *(KernelRule(pattern, "communication", whose) for row in rows for pattern, whose in row.collective_kernels),
        *KERNEL_RULES,
    )


_Each = tuple[tuple["re.Pattern[str]", KernelRule], ...]


@lru_cache(maxsize=8)
def _each(rules: tuple[KernelRule, ...]) -> _Each:
    return tuple((re.compile(rule.pattern), rule) for rule in dict.fromkeys(rules))


def _first(names: tuple[str, str], rules: tuple[KernelRule, ...]) -> KernelRule | None:
    """Return the first rule that matches the qualified or the own name."""
    qualified, own = names
    return next((rule for pattern, rule in _each(rules) if pattern.match(qualified) or pattern.match(own)), None)


@cache
def _any_builtin() -> "re.Pattern[str]":
    """Return what matches if any built-in rule does: most names match none, and that must be found out quickly."""
    return re.compile("|".join(f"(?:{rule.pattern})" for rule in dict.fromkeys(_builtin())))


@lru_cache(maxsize=8)
def _mentioning_digits(rules: tuple[KernelRule, ...]) -> "re.Pattern[str] | None":
    """Return what matches the shapes of all names for which digits decide; None if that cannot be told."""
    patterns = [pattern for pattern, _ in (*_each(rules), *_each(_builtin()))]
    general = [with_zeros(pattern) for pattern in patterns]
    mentioning = [one.pattern for one, pattern in zip(general, patterns, strict=True) if one and one is not pattern]
    if None in general:
        return None
    try:
        return re.compile("|".join(f"(?:{one})" for one in mentioning) or "(?!)")
    except re.error:  # patterns that cannot be joined: flags at their start, two groups of one name
        return None


def kernel_code(name: str, rules: Sequence[KernelRule] = ()) -> int:
    """Return the code of the kind that the first matching rule gives a kernel of this name; `NO_RULE` without one.

    Args:
        name: The kernel's name. Its return type, template arguments and parameters do not count: a GEMM does not
            communicate because one of its arguments mentions NCCL.
        rules: A user's rules, which come before perfkit's.
    """
    names = qualified, own = bare_names(name)
    found = _first(names, tuple(rules))
    if found is None:
        any_builtin = _any_builtin()
        if any_builtin.match(qualified) is None and (own == qualified or any_builtin.match(own) is None):
            return NO_RULE
        found = _first(names, _builtin())
    return KIND_CODE[found.kind] if found else NO_RULE


class RulesApplied(NamedTuple):
    """What a user's rules did in one trace."""

    classes: dict[int, KernelClass]
    """Classes that they gave to kernels, by the place of the name."""
    uses: list[KernelRuleUse]
    """One per rule."""


def apply_rules(names: Mapping[int, str], kernels: Ints, rules: Sequence[KernelRule]) -> RulesApplied:
    """Return what a user's rules give to kernels besides the kind, and what each rule did.

    Args:
        names: names of kernels, by their places.
        kernels: number of kernels, by the place of the name.
        rules: the rules.
    """
    patterns = [re.compile(rule.pattern) for rule in rules]
    matched, decided = [0] * len(rules), [0] * len(rules)
    classes: dict[int, KernelClass] = {}
    for place, name in names.items() if rules else ():
        qualified, own = bare_names(name)
        found = [number for number, one in enumerate(patterns) if one.match(qualified) or one.match(own)]
        for number in found:
            matched[number] += int(kernels[place])
        if found:
            decided[found[0]] += int(kernels[place])
            if (kernel_class := rules[found[0]].kernel_class) is not None:
                classes[place] = kernel_class
    counts = zip(rules, matched, decided, strict=True)
    uses = [KernelRuleUse(pattern=r.pattern, matched_kernels=m, decided_kernels=d) for r, m, d in counts]
    return RulesApplied(classes, uses)


def kernel_codes(shapes: NameShapes, names: Ints, rules: Sequence[KernelRule] = ()) -> NDArray[np.int8]:
    """Return the `kernel_code` of some names of `shapes`, by their places; names of one shape are looked up once."""
    own, shape = tuple(rules), shapes.of[names]
    with_digits = _mentioning_digits(own)
    code = np.full(len(shapes.distinct), NO_RULE, np.int8)
    by_name = np.zeros(len(shapes.distinct), np.bool_)
    used = np.flatnonzero(np.bincount(shape))
    if with_digits and not own:
        used = used[_maybe_matching([shapes.distinct[place] for place in used.tolist()], with_digits)]
    for place in used.tolist():
        text = shapes.distinct[place]
        by_name[place] = with_digits is None or any(map(with_digits.match, bare_names(text)))
        code[place] = NO_RULE if by_name[place] else kernel_code(text, own)
    found = code[shape]
    alone = np.flatnonzero(by_name[shape])
    found[alone] = [kernel_code(shapes.names[name], own) for name in names[alone].tolist()]
    return found


def _maybe_matching(names: list[str], with_digits: "re.Pattern[str]") -> NDArray[np.bool_]:
    """Return for which names a built-in rule may decide; most names of a trace match none."""
    qualified, own = zip(*map(bare_names, names), strict=True) if names else ((), ())
    found = np.zeros(len(names), np.bool_)
    for pattern in (_any_builtin(), with_digits):
        found |= starting_with(qualified, pattern) | starting_with(own, pattern)
    return found


_ARGUMENTS: Final = re.compile(r"[<(]")


def bare_names(name: str) -> tuple[str, str]:
    """Return a kernel's qualified and own name, without return type, template arguments and parameters."""
    bare = _ARGUMENTS.split(name.replace("(anonymous namespace)::", ""), maxsplit=1)[0].strip()
    qualified = bare.rsplit(" ", 1)[-1]
    return qualified, qualified.rsplit("::", 1)[-1]


def add_rule_uses(by_trace: Iterable[Sequence[KernelRuleUse]]) -> list[KernelRuleUse]:
    """Return what each rule did in all traces; a part without any trace is empty."""
    return [
        replace(
            same[0],
            matched_kernels=sum(use.matched_kernels for use in same),
            decided_kernels=sum(use.decided_kernels for use in same),
        )
        for same in zip(*filter(None, by_trace), strict=True)
    ]


def unused_rules(uses: Sequence[KernelRuleUse]) -> list[Observation]:
    """Return a finding that lists the rules that decided on no kernel, if there are any."""
    unused = [(number, use) for number, use in enumerate(uses, 1) if not use.decided_kernels]
    return [Observation("kernel_rules_unused", {"unused": unused})] if unused else []
