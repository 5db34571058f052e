"""Exposed communication in words, and what to do about it."""

from typing import Final

from perfkit.records.facts import Words
from perfkit.report.wording.ledger import slow_sentence

SENTENCES: Final[Words] = {
    "ranks_wait": "Ranks wait for ",
    "and": " and ",
    "of_dimension": " of dimension {dimension}",
    "mostly": "mostly {operator} of {bytes:size}{of}",
    "tensor_parallel_hosts": "tensor-parallel groups span hosts",
    "slow_transfers": slow_sentence,
    "tiny_collectives": "{count:.0f} {operator} per step, {bytes:size} in all, mostly latency",
    "each_micro_batch": "gradients are reduced in each of {count} micro-batches",
    "unused_parameters": "DDP searches for parameters without gradients in each step",
    "broadcast_buffers": "DDP broadcasts buffers before each forward, {count} per step",
    "expert_imbalance": (
        "the experts of the fullest rank of each layer get {imbalance:.2f} times the mean tokens, and ranks wait "
        "{ns:duration} per step for others in the dimension ep"
    ),
    "late_gathers": "{late} of {count} all-gathers in {phase} are issued too late to be hidden",
    "gathered_again": "backward gathers parameters again",
    "small_gathers": "{count:.0f} all-gathers per step, of {bytes:size} on average",
}

REMEDIES: Final[Words] = {
    "or": " or ",
    "compare_bandwidth": (
        "compare the bus bandwidth with that of the network, and see whether transfers could overlap with computation"
    ),
    "check_card": "check the network card of {host} and its cable: speed of the link, errors, retransmissions",
    "check_link": "check the cables and switches between {hosts:list}",
    "check_cards": "check the network cards and links of {ranks:ranks}",
    "check_traffic": "find what else uses the network in these steps: checkpoints, input, other jobs",
    "another_dimension": (
        "use another dimension, such as pp or sharding: with one rank per host, these groups always span hosts"
    ),
    "stay_on_a_host": (
        "keep each tensor-parallel group on one host: make it the innermost dimension of the mesh, of a size that "
        "divides the ranks of a host"
    ),
    "combine_collectives": (
        "combine them into one if they do not depend on each other; exchange what only reports, such as metrics, "
        "every few steps"
    ),
    "all_are_used": "leave out find_unused_parameters=True, if all parameters get gradients in each step",
    "keep_buffers": "pass broadcast_buffers=False to DDP, if the buffers need not agree in every step",
    "balance_experts": "balance the load of the experts: an auxiliary loss, a bias of the router, or a capacity factor",
    "overlap": "remove --no-overlap, so that gradients are averaged during backward",
    "smaller_buckets": (
        "use a smaller {own:|--bucket-cap-mb|bucket_cap_mb}: with one bucket for all gradients no transfer overlaps "
        "with backward"
    ),
    "larger_buckets": "use a larger {own:|--bucket-cap-mb|bucket_cap_mb}: fewer buckets per step",
    "no_sync": "reduce once per update: no_sync() around {skipped} of {count} micro-batches",
    "larger_batch": "use a larger --batch-size: fewer transfers per sample",
    "accumulate": "use --accumulate {times} to halve the transfers per sample",
    "or_larger_batch": ", or a larger --batch-size to overlap more of them",
    "accumulate_loop": lambda batches, larger: (
        f"accumulate gradients over {f'more than {batches} ' if batches > 1 else ''}micro-steps{larger}: fewer "
        "transfers per sample"
    ),
    "or_larger_batch_loop": ", or increase the batch per rank",
    "accumulate_shared": (
        "use --accumulate {times}: gradients of what all experts share are then reduced less often per sample"
    ),
    "accumulate_shared_loop": (
        "accumulate gradients over micro-steps: gradients of what all experts share are then reduced less often per "
        "sample"
    ),
    "gather_less": (
        "{own:|use a larger --batch-size|increase the batch of a micro-step}: each micro-step gathers the sharded "
        "parameters once, whatever its number of samples"
    ),
    "split_less": "use a smaller tp, if the model still fits: these transfers grow with the tokens",
    "divide_activations": "; --sequence-parallel divides activations too, so that more fits",
    "smaller_cp": ("use a smaller cp: each rank then keeps more of the sequence and passes on less of it per sample"),
    "experts_on_a_host": "keep each group of experts on one host",
    "fewer_experts": "send less: fewer experts per token (top-k), or a lower capacity factor",
    "smaller_top_k": "send less: fewer experts per token (--top-k {top_k})",
    "gather_earlier": "gather the next layers earlier: {how}; each layer ahead holds its parameters in memory",
    "prefetch_forward": "set_modules_to_forward_prefetch (FSDP1: forward_prefetch=True)",
    "prefetch_backward": "set_modules_to_backward_prefetch (FSDP1: backward_prefetch=BACKWARD_PRE)",
    "prefetch_layers": "--prefetch-layers {layers}",
    "keep_gathered": ("use {own:|--dp zero2|reshard_after_forward=False (FSDP1: SHARD_GRAD_OP)}, if memory allows"),
    "larger_units": (
        "shard larger units: several layers in one fully_shard, or a larger min_num_params of the wrap policy"
    ),
}
