"""Exposed communication in words, and what to do about it."""

from typing import Final

from perfkit.records.facts import Words

SENTENCES: Final[Words] = {
    "exposed_communication": "exposed communication takes {share:percent} of the step{at}",
    "at_ranks": " at {ranks} rank{ranks:||s}",
    "comma": ", ",
    "and": " and ",
    "waiting_share": "{partial:|at least |}{share:percent} of it waiting for ",
    "partly_waiting": ", part of it waiting for ",
    "waiting_up_to": ", up to {ns:duration} of it waiting for {ranks:ranks}",
    "transfer": ", {share:percent} of it {other:|other |}data transfer{of}",
    "of_dimension": " of dimension {dimension}",
    "dominated_by": ", dominated by {operator} of {bytes:size}",
    "tensor_parallel_hosts": (
        "tensor-parallel groups span hosts; their communication, a part of every layer, is exposed for "
        "{share:percent} of the step"
    ),
    "unknown_waiting": "; how much of {rest:|the rest|it} is waiting is unknown: ",
    "missing_ranks": "{count} rank{count:||s} {count:|has|have} no trace",
    "unknown_world_size": "the traces do not tell the number of ranks, of which some may have none",
    "not_comparable": "the ranks cannot be compared",
    "most_of_it_is": "most of it is ",
    "share_of_it_is": "{share:percent} of it is ",
    "in_one_to_n": "in broadcasts and the like, in which not all ranks wait for all others",
    "in_sends": "in sends, which may last until the other rank receives",
    "in_calls": "in calls that issue collectives or wait for them, outside of the collectives themselves",
    "in_unknown_kernels": "in kernels that do not tell which collective they run",
    "in_unmatched": "in collectives without a counterpart on another rank",
    "tiny_collectives": (
        "{count:.0f} tiny collectives per step ({operator}, {bytes:size} in all) take {ns:duration} of data transfer, "
        "nearly all of it latency"
    ),
    "broadcast_buffers": (
        "{count} broadcast{count:||s} per step expose {ns:duration} of communication; DDP broadcasts a model's "
        "buffers, such as those of batch normalisation, before each forward"
    ),
    "expert_imbalance": (
        "the experts of the fullest rank of each layer get {imbalance:.2f} times the mean tokens, and ranks wait "
        "{ns:duration} per step for others in the dimension ep"
    ),
    "late_gathers": (
        "{late} of {count} all-gathers of parameters in {phase} were issued after compute that could have hidden them: "
        "prefetching one layer further could hide {ns:duration} per step"
    ),
    "gathered_again": (
        "backward gathers {again}parameters per rank again in each step, which takes {ns:duration}: to keep them from "
        "forward to backward saves that, and costs {held}memory per rank"
    ),
    "bytes_of": "{bytes:size} of ",
    "up_to_bytes_of": "up to {bytes:size} of ",
    "small_gathers": (
        "{count:.0f} all-gathers of parameters per step, of {bytes:size} on average, are mostly latency "
        "({ns:duration} each; it is half of the time at {knee_bytes:size})"
    ),
}

REMEDIES: Final[Words] = {
    "or": " or ",
    "compare_bandwidth": (
        "compare the bus bandwidth with that of the network, and see whether transfers could overlap with computation"
    ),
    "another_dimension": (
        "use another dimension, such as pp or sharding: with one rank per host, these groups always span hosts"
    ),
    "stay_on_a_host": (
        "keep each tensor-parallel group on one host: make it the innermost dimension of the mesh, of a size that "
        "divides the ranks of a host"
    ),
    "analyse_all": "analyse the traces of all ranks",
    "combine_collectives": (
        "combine them into one if they do not depend on each other, or issue them only every few steps (metrics, for "
        "example)"
    ),
    "keep_buffers": "pass broadcast_buffers=False to DDP, if the buffers need not agree in every step",
    "balance_experts": "balance the load of the experts: an auxiliary loss, a bias of the router, or a capacity factor",
    "overlap": "remove --no-overlap, so that gradients are averaged during backward",
    "smaller_buckets": (
        "use a smaller {own:|--bucket-cap-mb|bucket_cap_mb}: with one bucket for all gradients no transfer overlaps "
        "with backward"
    ),
    "larger_buckets": (
        "use a larger {own:|--bucket-cap-mb|bucket_cap_mb}: most of the time of these {count:.0f} buckets per step is "
        "latency"
    ),
    "larger_batch": "use a larger --batch-size: fewer transfers per sample",
    "accumulate": "use --accumulate {times} to halve the transfers per sample",
    "or_larger_batch": ", or a larger --batch-size to overlap more of them",
    "accumulate_loop": "accumulate gradients over micro-steps{larger}: fewer transfers per sample",
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
