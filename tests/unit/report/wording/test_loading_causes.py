"""What waits for batches were spent on, in words: one golden file."""

from collections.abc import Callable

from perfkit.records.facts import fact
from perfkit.records.per_rank.loading import WAIT_CAUSES
from perfkit.report.wording import in_words

MS = 1_000_000


def test_causes_are_as_recorded(golden: Callable[[str, str], None]) -> None:
    of_rank, usual = (fact("of_rank", rank=3),), (fact("usual_batch", ns=MS),)
    slow = {"worker": 1, "ns": 150 * MS}
    causes = [
        *(fact(f"load_{cause}") for cause in WAIT_CAUSES),
        fact("slow_worker", where=(), usual=(), also=(), **slow),
        fact("slow_worker", where=of_rank, usual=usual, also=(fact("all_slow", of=2),), **slow),
        fact("slow_worker", where=of_rank, usual=usual, also=(fact("also_slow", ranks=2, of=4),), **slow),
        fact("slow_sample", index=117, ns=57 * MS, more=()),
        fact("slow_sample", index=117, ns=57 * MS, more=(fact("and_more", count=2),)),
        fact("slow_samples"),
    ]
    golden("\n".join(in_words((one,)) for one in causes), "wording/loading.txt")
