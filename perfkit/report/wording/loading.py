"""What waits for batches are spent on, in words, and what to do about it."""

from typing import Final

from perfkit.records.facts import Words
from perfkit.records.per_rank.loading import WaitCause

WAIT_WORDS: Final[dict[WaitCause, str]] = {
    "reading": "waiting for storage or a free core",
    "transforming": "preparing samples on the CPU",
    "collating": "collating batches",
    "transfer": "handing finished batches over, or waiting for a free core",
    "slow_worker": "a slow worker",
    "slow_sample": "a slow sample",
    "workers_busy": "waiting for workers, of which there are too few",
    "starting": "workers that are only starting",
    "waiting": "waiting for something other than files",
    "core": "waiting for a free core",
    "other": "not in the loader's fetches",
}

SENTENCES: Final[Words] = {
    **{f"load_{cause}": words for cause, words in WAIT_WORDS.items()},
    "slow_worker": "worker {worker}{where}, whose batches take {ns:duration}{usual}{also}",
    "of_rank": " of rank {rank}",
    "on_rank": " on rank {rank}",
    "usual_batch": ", against {ns:duration} of the others",
    "all_slow": " (all {of} ranks have such a worker)",
    "also_slow": " ({ranks} of {of} ranks have such a worker)",
    "slow_sample": "sample {index}, which took {ns:duration}{more}",
    "slow_samples": "single slow samples",
    "and_more": " and {count} more",
    "load_cause": "{what}",
}

REMEDIES: Final[Words] = {
    "reading": "read whole batches at once or ahead with workers (num_workers), or from faster storage",
    "transforming": "read whole batches at once, prepare samples before training, or in (more) workers",
    "collating": "collate less, such as fewer and larger tensors per sample, or in (more) workers",
    "starting": "keep the workers between epochs: persistent_workers=True",
    "transfer": "return fewer or smaller tensors per batch, and pin memory if they go to a device",
    "slow_worker": "find what only this worker does: its share of the files, its host's cores, its seed",
    "slow_sample": "look at this sample: its size, its file, what is decoded; leave it out or prepare it",
    "waiting": "remove what samples wait for, or use more workers, which wait at the same time",
    "core": "leave more cores to loading: fewer workers, threads or other programs on this host",
    "workers_busy": "use more workers, or fetch a batch with less work",
    "reading_without_cores": "read whole batches at once, from faster storage, or on a host with more cores",
    "transforming_without_cores": (
        "read whole batches at once, prepare samples before training, or use fewer ranks per host"
    ),
    "transfer_without_cores": ("leave a core to the process that trains: fewer workers; or return smaller batches"),
    "workers_busy_without_cores": "fetch a batch with less work: prepare samples once before training",
    "reading_with_workers": "read whole batches at once, with more workers, or from faster storage",
    "only_faster_storage": "use faster storage, or read less: smaller types, samples prepared once",
    "or_faster_storage": ", or faster storage",
    "batched_or_more_workers": "use batched reads (--read batched), or more than {workers} workers",
    "batched_or_workers": "use batched reads (--read batched), or --num-workers 2",
    "use_workers": "use --num-workers 2 to load while the step computes",
    "more_workers_or_storage": "use more than {workers} workers, --prefetch, or faster storage",
    "more_loader_workers": "use more loader workers, or a larger prefetch_factor",
    "read_ahead": "read in batches, or with loader workers that read ahead",
}
