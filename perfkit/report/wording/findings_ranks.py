"""Messages about the ranks of a run: which trace is of which, and what comparing them shows."""

from collections.abc import Sequence
from typing import Final

from perfkit.base.formatting import duration, listed, ranges, rank_list
from perfkit.records.cross_rank import HostClock, OneOffStraggler, Straggler
from perfkit.records.facts import Words
from perfkit.report.wording.ledger import slow_sentence
from perfkit.report.wording.stragglers import early_sentence, one_off_cause, one_off_step, stragglers_sentence, whom

_MOST_LISTED: Final = 3
_LONGEST_LIST: Final = 60
_NO_GRAPH: Final = {
    "mixed_jobs": "traces of more than one job",
    "unranked": "several traces without a rank",
    "different_steps": "the ranks recorded different steps",
}


def _rank_unknown(traces: int, apart: bool) -> str:
    message = "rank unknown, neither in the header nor in the file name: use --rank, or name the file rank<N>.json.gz"
    if traces == 1:
        return message
    when = "; by their timestamps they were not all recorded at one time, and may be of several jobs" if apart else ""
    return f"{message}{when}; analyse traces of another job separately"


def _header_ranks_ignored(rank: int, files: Sequence[str], ignored: Sequence[tuple[str, int]]) -> str:
    ranks = listed([f"{file}: rank {in_header}" for file, in_header in ignored], _MOST_LISTED)
    return (
        f"several traces have rank {rank} in their headers but different ranks in their file names "
        f"({listed(files, _MOST_LISTED)}): file names count in this run and headers are ignored ({ranks}); "
        "put independent single-process runs into separate folders"
    )


def _rank_name_mismatch(claims: Sequence[tuple[str, int]]) -> str:
    ranks = listed([f"{file} has rank {in_header} in its header" for file, in_header in claims], _MOST_LISTED)
    return f"header and file name give different ranks; the header counts: {ranks}"


def _without_trace(missing: int, of: int, absent: Sequence[int], chosen: bool) -> str:
    whole = f"the {of} that were to record" if chosen else f"{of} ranks"
    return f"trace missing for {missing} of {whole}{f' ({_ranks(absent)})' if absent else ''}; excluded"


def _not_chosen(chosen: Sequence[int], world_size: int) -> str:
    return (
        f"only {_ranks(chosen)} of {world_size} {'was' if len(chosen) == 1 else 'were'} to record these steps "
        "(perfkit capture --ranks): what the others did in them is not known"
    )


def _ranks(numbers: Sequence[int]) -> str:
    every = ranges(numbers)
    shown = every if len(every) <= _LONGEST_LIST else every[:_LONGEST_LIST].rsplit(",", 1)[0] + ", …"
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {shown}"


def _world_size_unknown(backends: Sequence[str]) -> str:
    have = f"name the backend {', '.join(backends)}" if backends else "contain communication"
    return f"the traces {have} but no world size: ranks may be missing, and their number is unknown"


def _straggler(stragglers: Sequence[Straggler], gain_ns: int | None, profiler_ns: int, partial: bool) -> str:
    """Return the sentence about all late ranks: what others wait for may also be a rank without a trace."""
    sentence = stragglers_sentence(stragglers, gain_ns, profiler_ns)
    return sentence + (". A rank without a trace may be as late" if partial else "")


def _one_off_straggler(late: OneOffStraggler) -> str:
    return (
        f"one-off delay: {rank_list([late.rank, *late.with_ranks])} {'delay' if late.with_ranks else 'delays'} "
        f"{whom(late)} by {duration(late.lag_ns)} in {one_off_step(late)} ({one_off_cause(late)}), far more than "
        f"in a typical step{'; the profiler may have started in it, and cost some of it' * late.is_first}"
    )


def _clocks_differ(apart: int, clocks: int, first_rank: int, most: HostClock) -> str:
    where = f"of host {most.host}" if most.host else f"of rank {most.ranks[0]}"
    ahead = "ahead of" if (most.offset_ns or 0) < 0 else "behind"
    return (
        f"{apart} of {clocks} clocks differ from that of rank {first_rank}: the clock {where} is "
        f"{duration(abs(most.offset_ns or 0))} {ahead} it (± {duration(most.residual_ns)}); no metric compares clocks"
    )


RANKS: Final[Words] = {
    "rank_unknown": _rank_unknown,
    "rank_name_mismatch": _rank_name_mismatch,
    "header_ranks_ignored": _header_ranks_ignored,
    "duplicate_rank/world_size": (
        "claims rank {rank} of world size {size}, but {other} has world size {other_size}: excluded; put each job into "
        "a separate folder"
    ),
    "duplicate_rank": ("claims rank {rank} at the same time as {other}: excluded; put each job into a separate folder"),
    "multiple_traces_per_rank": (
        "{traces} traces claim rank {rank}: traces that do not overlap and have the same world size are treated as its "
        "profiling cycles"
    ),
    "world_size_unknown": _world_size_unknown,
    "rank_out_of_range": (
        "a trace is of rank {rank}, but the world size is {world_size}: are the traces from one job?"
    ),
    "ranks_missing": _without_trace,
    "ranks_missing/not_chosen": _not_chosen,
    "mixed_devices": "some ranks have device activity and others do not: their metrics are not comparable",
    "no_collectives": (
        "{silent} of {traces} traces contain no collective although the world size is {world_size}: "
        "{has_group:|no recorded step had one|no process group was initialised (each rank trained alone)}, collectives "
        "were not recorded, or perfkit does not recognise their kernel names"
    ),
    "uneven_steps": (
        "the ranks recorded different numbers of steps (rank {rank}: {steps}, others up to {most}): sums over ranks "
        "are not comparable"
    ),
    "straggler": _straggler,
    "early_ranks": early_sentence,
    "one_off_straggler": _one_off_straggler,
    "slow_transfers": slow_sentence,
    "collectives_unmatched": (
        "{calls} of {of} collectives have no counterpart on another rank: their time counts as transfer"
    ),
    "collectives_unmatched/messages": (
        "{calls} of {of} sends and receives are not matched with each other: the traces do not name the peer, a kernel "
        "runs several, or a counterpart was not recorded; their time is transfer"
    ),
    "suspect_matches": (
        "{apart} of {of} matched collectives completed on one rank before another rank started them: the traces do not "
        "contain the same collectives in the same order, so waiting times are unreliable"
    ),
    "groups_incomplete": (
        "{short} of {of} matched collectives belong to groups of up to {size} ranks, of which at most {present} have a "
        "trace: waiting for the missing ranks counts as transfer, so transfers are upper bounds, bandwidths are lower "
        "bounds, and a missing rank may be the straggler"
    ),
    "groups_incomplete/unknown_size": (
        "{short} of {of} matched collectives belong to groups of unknown size: ranks without a trace may take part in "
        "them, and waiting for these would count as transfer, so transfers are upper bounds, bandwidths are lower "
        "bounds, and a missing rank may be the straggler"
    ),
    "clocks_differ": _clocks_differ,
    "start_skew": (
        "a rank waits {first_ns:duration} in the first matched collective, but at most {usual_ns:duration} "
        "{has_later:|in the median later step|in the median other one}: it {has_later:|includes|may include} the skew "
        "with which the ranks started recording"
    ),
    "timelines_disagree": (
        "the ranks' timelines are inconsistent: replayed without transfers, the run would take {replayed_ns:duration}, "
        "longer than measured ({measured_ns:duration})"
    ),
    "critical_path_unknown": lambda reason: f"no critical path over the ranks: {_NO_GRAPH[reason]}",
}
