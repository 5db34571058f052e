"""Pipelines in words: bubbles, heavy stages, and what to do about them."""

from typing import Final

from perfkit.records.facts import Words
from perfkit.tables.labels import heavy_clause, heavy_names

SENTENCES: Final[Words] = {
    "bubble_of_schedule": "{batches} micro-batch{batches:||es} on {ranks} ranks",
    "bubble_of_transfers": (
        "transfers, {exchanges:|communication of data-parallel ranks, |}and what ranks do between micro-batches"
    ),
    "heavy_stages": heavy_clause,
    "heavy_stage": " per micro-batch",
}

REMEDIES: Final[Words] = {
    "one_stage_per_rank": (
        "try {own:|--pp-schedule 1f1b|1F1B with one stage per rank}, which sends fewer messages per micro-batch; with "
        "equal stages the schedule then idles {share:percent} of the pipeline's time"
    ),
    "fewer_micro_batches": (
        "try {use}: half as many messages, each twice as large; with equal stages the schedule then idles "
        "{then:percent} of the pipeline's time instead of {now:percent}"
    ),
    "see_bubbles": "perfkit merge draws micro-batches and bubbles of all stages: see what lies between them",
    "use_1f1b": ("use {own:|--pp-schedule 1f1b|1F1B with} {use} or more: the stages then compute at the same time"),
    "more_micro_batches": "use more {own:|--micro-batches|micro-batches per step}",
    "use_micro_batches": (
        "use {use}: with equal stages, the schedule then idles {then:percent} of the time instead of {now:percent}"
    ),
    "or_interleaved": "; or --pp-schedule interleaved, with two stages per rank: {share:percent}",
    "micro_batches": "{count} micro-batches per step",
    "micro_batches_option": "--micro-batches {count}",
    "batch_multiple": " and a --batch-size that is a multiple of {count}",
    "move_work": lambda heavy: (
        f"move work from {heavy_names(heavy)} to the other stages: moving "
        f"{'one layer of one stage' if heavy.also else 'a whole layer'} is not known to help"
    ),
    "move_layer": (
        "give a layer of stage {stage} to stage {to_stage}{between:|, or to the stages between|}: by replay a step is "
        "then {ns:duration} shorter"
    ),
}
