"""Catalogue of finding codes: every code perfkit reports, with its meaning.

`Finding.code` is a string in the file formats, not an enumeration, because plug-ins may report their own codes. They
are prefixed with the package's name and a dot (`mypackage.no_power_data`), so that they never collide with these.
"""

from collections.abc import Mapping
from typing import Final

from perfkit.records.common import Severity

FINDING_CODES: Final[Mapping[str, str]] = {
    # Trace files
    "not_a_trace": "The file is not a profiler trace and was skipped.",
    "not_a_regular_file": "The path is a pipe or device file and was skipped.",
    "unreadable_trace": "The trace cannot be read; its rank is excluded.",
    "worker_lost": "The process that analysed the trace died or ran out of memory; its rank is excluded.",
    "damaged_trace": "Part of the trace is truncated or corrupt; the rest was analysed.",
    "damaged_header": "Metadata in the trace's header is invalid and was ignored.",
    "skipped_events": "Events without a usable start were skipped; what they recorded is missing in the analysis.",
    "repaired_events": "Events, or records of memory, were invalid; what was invalid about them was ignored.",
    "unknown_events": "Events of categories unknown to perfkit were ignored.",
    "timestamp_gap": "More than an hour passes between two events, or in one device event; a timestamp may be corrupt.",
    "no_host_operators": "The trace has kernels but no host operators; collectives are identified by kernel name only.",
    "no_device_events": "The program used a device, but the trace has no device activity.",
    "names_cut": "The trace has very many names of kernels and operators; only those with the most time are listed.",
    "possible_communication": "Kernels of unknown names count as compute, but may be communication.",
    "kernel_rules_unused": "Rules of `--kernel-rules` match no kernel, or only kernels that earlier rules match.",
    "graphs_hide_operators": "Kernels were launched as parts of graphs; which operators they belong to is unknown.",
    "compilation_hides_operators": "Fused code of torch.compile has no events on the CPU; its operators are unknown.",
    "launches_missing": "Device activity has no launch in the trace; what it waited for, and its operator, is unknown.",
    "kernels_lost": "Launched kernels are not in the trace; steps that lost some are left out, if others did not.",
    "impossible_times": "Device activities contradict launches or the order of streams; they were cut or left out.",
    "device_clock_differs": "The device's clock differs from the host's: its times were shifted by that, or it drifts.",
    "collective_sizes_unmatched": "The run's record of collectives does not match all of them; some sizes are unknown.",
    # Steps
    "no_steps": "No annotation marks steps; the optimizer or the loader tells them, or the whole trace counts as one.",
    "steps_of_device": "Only annotations of the device mark steps; each lasts from its first launch to its last.",
    "time_between_steps": "Time lies between the steps that `--step-marker` marks; it belongs to none.",
    "no_marked_loading": "No annotation or function of the thread that trains matches `--data-marker`.",
    "steps_cut": "The trace has very many steps; only the first were analysed.",
    "repeated_steps": "Step numbers start again, in one trace or in the traces of a rank.",
    "steps_missing": "Steps between others have no annotation; their time counts for the step before.",
    "steps_without_device_work": "No device activity belongs to some steps.",
    "work_before_steps": "Device activity was launched before the first step and belongs to no step.",
    "uneven_steps": "The ranks recorded different numbers of steps.",
    # Ranks of a run
    "rank_unknown": "Neither header nor file name contains the trace's rank.",
    "rank_name_mismatch": "Header and file name give different ranks; the header counts.",
    "header_ranks_ignored": "Headers give several traces the same rank; file names count in this run.",
    "duplicate_rank": "Traces of one rank overlap in time or in world size; one was excluded.",
    "multiple_traces_per_rank": "Several traces of one rank were treated as its profiling cycles.",
    "world_size_unknown": "The traces have a backend or communication, but no world size; ranks may be missing.",
    "rank_out_of_range": "A rank is not below the world size.",
    "ranks_missing": "Ranks of the world have no trace; of a capture, perhaps because they were not asked for one.",
    "several_jobs": "A folder has traces of several jobs; each is analysed as a separate run.",
    "mixed_devices": "Some ranks have device activity and others do not.",
    "no_collectives": "Traces of a multi-rank run contain no collective.",
    # Across ranks
    "straggler": "Ranks take longer than the others, beyond chance: in all steps, in every n-th, in many, or in turns.",
    "early_ranks": "Ranks compute for less time than the others, beyond chance, and wait for them.",
    "one_off_straggler": "Ranks delay the others in a single step, and usually do not.",
    "slow_transfers": "Transfers of some ranks, hosts or steps take longer than comparable ones, beyond chance.",
    "collectives_unmatched": "Collectives, or sends and receives, could not be matched with those of another rank.",
    "suspect_matches": "Matched collectives contradict the aligned clocks; waiting times are unreliable.",
    "groups_incomplete": "Process groups include ranks without a trace, or may; transfer times are upper bounds.",
    "clocks_differ": "The clocks of the hosts differ.",
    "start_skew": "The first collective includes the skew with which the ranks started recording.",
    "critical_path_unknown": "There is no critical path over the ranks.",
    "ranks_not_replayed": "Some ranks have no trace, or no common clock; what others waited for them does not change.",
    "steps_not_replayed": "Of many steps, or of steps that not all ranks recorded, only some were replayed.",
    "waits_unknown": "What a rank waits for is unknown for part of its exposed communication: predictions may be off.",
    "dependencies_contradicted": "The times in the traces contradict dependencies between their events.",
    "timelines_disagree": "The ranks' timelines are inconsistent: without transfers the run would take longer.",
    # Manifest and sweep
    "unreadable_manifest": "run.json cannot be read.",
    "no_traces": "The run has no readable trace.",
    "missing_traces": "Traces listed in run.json are missing or unreadable.",
    "run_failed": "The run failed.",
    "run_hung": "No step ended for long (--hang-after), and the run was not ended for that.",
    "hangs_unread": "The list of the run's hangs (hangs.json) could not be read.",
    "run_unfinished": "The run has not finished, was killed, or left by `os._exit`.",
    "has_captures": "The run also has steps that were recorded on demand, each set in a separate folder.",
    "captured_after_condition": "A condition of --capture-when asked for the trace, in a step before those recorded.",
    "incomplete_capture": "A rank has recorded fewer steps of a capture than planned, or none.",
    "not_compiled": "Compilation was requested, but no graph was compiled.",
    "compilation_recorded": "Code was compiled or loaded during recorded steps, so their times include that.",
    "oversubscribed": "CPU ranks use more threads than their host has cores.",
    "same_batches": "Data-parallel ranks train on the same batches.",
    "replicas_differ": "Ranks that reduce their gradients without a wrapper have different parameters.",
    "injected_delay": "A delay was injected on purpose (--inject).",
    "unreadable_sweep": "sweep.json cannot be read.",
    "point_failed": "A point of a sweep failed and left no run.",
    "sweep_points_pending": "Points of a sweep have not run yet.",
    # Logs of the monitor
    "step_time_changed": "The step time changed for a stretch of the run or for good, at a step or gradually.",
    "periodic_stalls": "Every n-th step of the run takes longer.",
    "slow_steps": "Single steps of the run took more than twice the usual time.",
    "rank_late_over_run": "Other ranks waited for these ranks over a part of the run, or occasionally.",
    "loss_not_a_number": "The loss is NaN or infinite, from a step on or in some steps.",
    "monitor_log_ends_early": "The logs of ranks end before those of others: nothing is known of their later steps.",
    "monitor_log_unread": "Logs of the monitor could not be read completely.",
    # Comparisons and histories
    "too_few_repeats": "There are too few repeats to distinguish a change from noise.",
    "profiled_step_disagrees": "Steps with and without the profiler differ between runs in opposite directions.",
    "mixed_configurations": "The runs on one side of a comparison are not repeats of one configuration.",
    "models_differ": "The runs before and after train different models: neither steps nor rates are comparable.",
    "samples_per_step_differ": "A step has more samples on one side of a comparison than on the other.",
    "ranks_differ": "The runs before and after have different numbers of ranks, and samples per step are unknown.",
    "configurations_differ": "The runs before and after differ in options.",
    "devices_differ": "The runs used different devices.",
    "versions_differ": "The runs used different package versions.",
    "no_scaling_series": "Runs on different numbers of ranks are no scaling series: what is missing.",
    "run_excluded": "The run cannot be part of a history and was excluded.",
    # Benchmark of collectives
    "wrong_results": "Collectives returned wrong results.",
    "unsupported_collective": "The backend does not support a collective, which was not measured.",
    "different_batches": "Two sources, or ways to read, gave different batches.",
    "cache_not_dropped": "Files stayed in the page cache although they were dropped; cold passes may be too fast.",
    "not_cached": "Files did not stay in the page cache after they were read; warm passes also read from storage.",
    "one_stripe": "All ranks read a large file that lies on one storage target of Lustre.",
    "slow_link": "Messages of a pair of ranks, a rank or a host take longer than comparable ones, beyond noise.",
    "other_network_measured": "A run is compared with collectives measured on another backend or device.",
    "not_measured": "The measured collectives contain none of the run's.",
    # Logs of NCCL
    "nccl_some_sockets": "Pairs of ranks on different hosts exchange data over sockets, others over a faster network.",
    "nccl_only_sockets": "All pairs of ranks on different hosts that exchange data over the network use sockets.",
    "nccl_shared_memory": "Pairs of ranks of a host exchange data in shared memory, others directly (P2P).",
    "nccl_disabled": "NCCL_IB_DISABLE, NCCL_P2P_DISABLE or NCCL_SHM_DISABLE is set.",
    "nccl_versions_differ": "Ranks of one communicator use different versions of NCCL.",
    "nccl_warnings": "NCCL logged warnings, which may be errors.",
    "nccl_timeout": "A collective did not end in time, as torch's watchdog reports.",
    "nccl_ranks_differ": "The largest communicator in the NCCL logs has another number of ranks than the run.",
    "one_ccl_sockets": "oneCCL exchanges data between hosts over sockets (libfabric's provider tcp, sockets or udp).",
    "one_ccl_pcie": "oneCCL found devices connected by PCIe, not by Xe Link.",
    "one_ccl_warnings": "oneCCL logged warnings, besides those about its variables.",
    "one_ccl_errors": "oneCCL logged errors.",
    "nccl_log_unread": "The NCCL logs in the run's folder were not read.",
    # Extensions
    "cross_check_failed": "The cross-check with another tool failed.",
    "subject_failed": "A subject of a plug-in failed; what it tells is left out.",
}

_ERRORS: Final = (
    "unreadable_trace worker_lost duplicate_rank unreadable_manifest run_failed point_failed wrong_results "
    "different_batches nccl_timeout one_ccl_errors"
)
_INFORMATION: Final = (
    "not_a_trace not_a_regular_file no_host_operators names_cut graphs_hide_operators compilation_hides_operators "
    "collective_sizes_unmatched steps_of_device work_before_steps world_size_unknown early_ranks one_off_straggler "
    "slow_transfers collectives_unmatched groups_incomplete clocks_differ start_skew critical_path_unknown "
    "steps_not_replayed "
    "has_captures captured_after_condition injected_delay sweep_points_pending configurations_differ versions_differ "
    "run_excluded no_scaling_series one_stripe not_measured nccl_shared_memory nccl_ranks_differ one_ccl_pcie "
    "one_ccl_warnings"
)


def severity_of(code: str) -> Severity:
    """Return how severe a finding of this code is, unless it says otherwise."""
    return "error" if code in _ERRORS.split() else "info" if code in _INFORMATION.split() else "warning"


MONITOR_CODES: Final = ("step_time_changed", "periodic_stalls", "slow_steps", "rank_late_over_run")
"""Findings that the answer about the whole run consists of, in this order."""

INCIDENT_CODES: Final = ("run_failed", "run_hung", "slow_steps")
"""What happened, which comes before what casts doubt on figures."""
