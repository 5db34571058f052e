"""What keeps the ranks of a hang waiting, in words."""

from collections.abc import Mapping, Sequence
from typing import Final

from perfkit.base.formatting import ranges, size
from perfkit.records.facts import Words

_MOST_LISTED: Final = 8
_MISMATCHES: Final = {
    "operator": "mismatched collectives",
    "dtype": "the data types differ",
    "size": "the sizes differ",
}
_PLURALS: Final = (
    *(
        (f"has not {done} it: it {one}", f"have not {done} it: {several}")
        for done in ("issued", "sent", "received")
        for one, several in (("issued ", "they issued "), ("is in ", "they are in "), ("", "each "))
    ),
    (
        "runs, but did not write what it does (a call that does not return may hold Python's lock), so that it is not "
        "known what it has issued",
        "run, but did not write what they do (a call that does not return may hold Python's lock), so that it is not "
        "known what they have issued",
    ),
    ("has left no record of its ", "have left no record of their "),
    ("has ", "have "),
    ("is ", "are "),
    ("was ", "were "),
    ("waits for its ", "each wait for their "),
    ("waits in ", "wait in "),
)
"""How what is said of one rank begins, and the same of several."""


def _by_text(texts: Mapping[int, str]) -> str:
    """Return what is known of each rank, once for those of which it is the same."""
    ranks_of: dict[str, list[int]] = {}
    for rank, text in texts.items():
        ranks_of.setdefault(text, []).append(rank)
    return "; ".join(f"{_ranks(ranks)} {_of(ranks, text)}" for text, ranks in list(ranks_of.items())[:_MOST_LISTED])


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranges(ranks)}"


def _of(ranks: Sequence[int], text: str) -> str:
    """Return what was said of one rank, of all these."""
    for one, several in _PLURALS if len(ranks) > 1 else ():
        if text.startswith(one):
            return several + text.removeprefix(one)
    return text


def _several(parts: Mapping[object, str]) -> str:
    return "; ".join(list(parts.values())[:_MOST_LISTED])


def _at(site: str | None) -> str:
    return f" at {site}" if site else ""


def _issued_call(
    op: str, seq: int, group: str | None, size_bytes: int | None, dtype: str | None, site: str | None
) -> str:
    message = ", ".join([*([size(size_bytes)] if size_bytes is not None else []), *([dtype] if dtype else [])])
    details = (f" of {group}" if group else "") + (f" ({message})" if message else "")
    return f"{op} #{seq}{details}{_at(site)}"


def _message(kind: str, peer: int | None, tag: int, group: str | None, site: str | None) -> str:
    way = "from" if kind == "recv" else "to"
    whom = "any rank" if peer is None else f"rank {peer}"
    details = (f" with tag {tag}" if tag else "") + (f" of group {group}" if group else "")
    return f"{kind} {way} {whom}{details}{_at(site)}"


def _waiting(ranks: Sequence[int], verb: str, what: str) -> str:
    return f"{_ranks(ranks)} {_of(ranks, f'{verb} {what}')}" + (", which has not ended there" * (verb == "issued"))


def _no_culprit(places: Mapping[int, str]) -> str:
    where = f": {_by_text(places)}" if places else ""
    return f"No rank was found to keep others waiting{where}"


def _left_out(ranks: Sequence[int], op: str, group: str, site: str | None, times: int) -> str:
    who = "it" if len(ranks) == 1 else "they"
    return (
        f"{_ranks(ranks)} left out {op} of {group}{_at(site)}, which {who} had issued at this point each of the "
        f"{times} times before"
    )


SENTENCES: Final[Words] = {
    "text": "{text}",
    "default_group": "the default group",
    "group": "group {name}",
    "code_line": lambda file, line, function: f"`{function}` at {file}:{line}" if function else f"{file}:{line}",
    "issued_call": _issued_call,
    "message": _message,
    "waits_in": "waits in {what}",
    "is_in": "is in {code}",
    "waits_for_loader": lambda code, worker: (
        f"waits for its data loader at {code}" + (f", whose worker is in {worker}" if worker else "")
    ),
    "issued_open": "issued {call}, which has not ended",
    "not_ended": lambda call, place: f"has not ended {call}" + (f"; {place}" if place else ""),
    "unknown_place": "unknown",
    "not_done": lambda done, place: f"has not {done} it" + (f": it {place}" if place else ""),
    "left_no_record": "has left no record of its collectives",
    "left_no_file": "left no file",
    "no_files": lambda ranks: f"{_ranks(ranks)} left no file",
    "second_record": "{file}: there is another record of rank {rank}",
    "old_record": "{file}: it is of an earlier report",
    "all_agree": "All ranks agree: no rank waits for another in the {compared:,} collectives that were recorded.",
    "no_culprit": _no_culprit,
    "waiting": _waiting,
    "waiting_for": lambda ranks, verb, what, culprits: f"{_waiting(ranks, verb, what)}; {_by_text(culprits)}",
    "circle": lambda messages: (
        _several({rank: f"rank {rank} waits in {message}" for rank, message in messages.items()})
        + ": they wait for each other"
    ),
    "mismatch": lambda kind, ranks, call, others: (
        f"{_ranks(ranks)} issued {call}; {_several(others)}: {_MISMATCHES[kind]}"
    ),
    "instead": lambda ranks, call: f"{_ranks(ranks)} issued {call} instead",
    "gone": "rank {rank} {how}",
    "deadlock": lambda waits, why: f"{_several(waits)}: they wait for each other, because {why}",
    "not_issued_by": lambda wait, ranks: f"{wait}, which {_ranks(ranks)} did not issue",
    "left_out": _left_out,
    "other_order": "a collective was left out, or the groups are used in a different order",
}
