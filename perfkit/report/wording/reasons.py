"""Why a figure of a run is unknown, in words."""

from typing import Final

from perfkit.records.facts import Words


def _no_peaks(device: str, threads: int | None) -> str:
    on = "" if threads is None else f" with {threads} thread{'s' * (threads != 1)}"
    return f"no peaks of {device}{on} are known: measure them with perfkit peaks -o FILE, and give --device-table FILE"


SENTENCES: Final[Words] = {
    "traces_of": lambda traces, ranks: f"traces of {traces} of {ranks or 'an unknown number of'} ranks",
    "actions_not_annotated": "some micro-batches of some stages are not annotated",
    "too_many_actions": "too many stages or micro-batches",
    "transfers_bounded": "ranks of the group have no trace: transfers are only upper bounds",
    "few_message_sizes": "{sizes} distinct sizes: a latency and a bandwidth need {fewest}",
    "no_compute_measured": "no compute in the measured steps",
    "partly_traced": "{partial}: load balance and parallel efficiency are not known",
    "device_not_recorded": "device activity was not recorded",
    "no_step_times": "the run has not written its step times: it is still running, was killed, or left by os._exit",
    "no_step_recorded": "no step was recorded",
    "no_plain_steps": (
        "no warm step ran without the profiler: use more --steps than the schedule needs, or a longer wait"
    ),
    "plain_on_one_side": (
        "not measurable here: warm steps without the profiler are needed before and after the recorded ones, as with "
        "--schedule wait=5,warmup=1 and five more steps"
    ),
    "few_steps": ("not measurable here: {recorded} recorded and {plain} other steps are too few to tell it from noise"),
    "wide_interval": (
        "not measurable here: only known to be between {low_ns:duration} and {high_ns:duration} per step"
    ),
    "recorded_steps_faster": (
        "not measurable here: the recorded steps were the faster ones, so something else changed between them"
    ),
    "within_variation": (
        "not measurable here: within the variation between steps, at most {high_ns:duration} per step"
    ),
    "several_devices": "the ranks run on different devices: {names:list}",
    "unnamed_device": "the traces do not name the {what}; those of perfkit's own runs come with run.json",
    "no_peaks": _no_peaks,
    "ranks_on_cores": "{ranks} ranks on {cores} core{cores:||s}",
    "threads_on_cores": "{threads} threads on {cores} core{cores:||s}",
}
