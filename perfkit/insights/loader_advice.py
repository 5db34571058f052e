"""What to do about waiting for batches, by what it is spent on."""

from typing import Final

from perfkit.schema.per_rank.loading import WaitCause

_ADVICE: Final[dict[WaitCause, str]] = {
    "reading": "read whole batches at once or ahead with workers (num_workers), or from faster storage",
    "transforming": "transform samples once before training, or in (more) workers",
    "collating": "pass a faster collate_fn: stack tensors at once, without Python loops over samples",
    "transfer": "return fewer or smaller tensors per batch, and pin memory if they go to a device",
    "slow_worker": "find what only this worker does: its share of the files, its host's cores, its seed",
    "slow_sample": "look at this sample: its size, its file, what is decoded; leave it out or prepare it",
    "workers_busy": "use more workers, or fetch a batch with less work",
}


def advice_for_loading(cause: WaitCause) -> str | None:
    """Return what to do; None if the cause tells nothing."""
    return _ADVICE.get(cause)
