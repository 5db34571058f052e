"""Catalogue of finding codes: every code perfkit reports, with its meaning.

`Finding.code` is a string in the file formats, not an enumeration, because plug-ins may report codes of their own. They
are prefixed with the package's name and a dot (`mypackage.no_power_data`), so that they never collide with these.
"""

from collections.abc import Mapping
from typing import Final

FINDING_CODES: Final[Mapping[str, str]] = {
    # Trace files
    "not_a_trace": "The file is not a profiler trace and was skipped.",
    "not_a_regular_file": "The path is a pipe or device file and was skipped.",
    "unreadable_trace": "The trace cannot be read; its rank is excluded.",
    "worker_lost": "The process that analysed the trace died or ran out of memory; its rank is excluded.",
    "damaged_trace": "Part of the trace is truncated or corrupt; the rest was analysed.",
    "damaged_header": "Metadata in the trace's header is invalid and was ignored.",
    "repaired_events": "Events were invalid and were repaired or dropped.",
    "unknown_events": "Events of categories unknown to perfkit were ignored.",
    "timestamp_gap": "More than an hour passes between two events, or in one device event; a timestamp may be corrupt.",
    "no_host_operators": "The trace has kernels but no host operators; collectives are identified by kernel name only.",
    "no_device_events": "The program used a device, but the trace has no device activity.",
    "names_cut": "The trace has very many names of kernels and operators; only those with the most time are listed.",
    "possible_communication": "Kernels of unknown names count as compute, but may be communication.",
    "graphs_hide_operators": "Kernels were launched as parts of graphs; which operators they belong to is unknown.",
    "compilation_hides_operators": "Fused code of torch.compile has no events on the CPU; its operators are unknown.",
    "launches_missing": "Device activity has no launch in the trace; what it waited for, and its operator, is unknown.",
    "collective_sizes_unmatched": "The run's record of collectives does not match all of them; some sizes are unknown.",
    # Steps
    "no_steps": "The trace has no step annotations; the whole trace counts as one step.",
    "steps_cut": "The trace has very many steps; only the first were analysed.",
    "repeated_steps": "Step numbers occur more than once in one trace.",
    "steps_without_device_work": "Steps have no device activity of their own.",
    "work_before_steps": "Device activity was launched before the first step and belongs to no step.",
    "uneven_steps": "The ranks recorded different numbers of steps.",
    # Ranks of a run
    "rank_unknown": "Neither header nor file name contains the trace's rank.",
    "rank_name_mismatch": "Header and file name give different ranks; the header counts.",
    "header_ranks_ignored": "Headers give several traces the same rank; file names count in this run.",
    "duplicate_rank": "Traces of one rank overlap in time or in world size; one was excluded.",
    "multiple_traces_per_rank": "Several traces of one rank were treated as its profiling cycles.",
    "world_size_unknown": "The traces name a backend but no world size; ranks may be missing.",
    "rank_out_of_range": "A rank is not below the world size.",
    "ranks_missing": "Ranks of the world have no trace.",
    "several_jobs": "A folder has traces of several jobs; each is analysed as a run of its own.",
    "mixed_devices": "Some ranks have device activity and others do not.",
    "no_collectives": "Traces of a multi-rank run contain no collective.",
    # Across ranks
    "straggler": "Ranks take longer than the others, beyond chance: in every step, in every n-th, or in turns.",
    "one_off_straggler": "One rank delays the others in a single step.",
    "collectives_unmatched": "Collectives, or sends and receives, could not be matched with those of another rank.",
    "suspect_matches": "Matched collectives contradict the aligned clocks; waiting times are unreliable.",
    "groups_incomplete": "Process groups include ranks without a trace; transfer times are upper bounds.",
    "clocks_differ": "The clocks of the hosts differ.",
    "start_skew": "The first collective includes the skew with which the ranks started recording.",
    "critical_path_unknown": "There is no critical path over the ranks.",
    "ranks_not_replayed": "Some ranks have no trace, or no common clock; what others waited for them does not change.",
    "steps_not_replayed": "Of many steps, or of steps that not all ranks recorded, only some were replayed.",
    "dependencies_contradicted": "The times in the traces contradict dependencies between their events.",
    "timelines_disagree": "The ranks' timelines are inconsistent: without transfers the run would take longer.",
    # Manifest and sweep
    "unreadable_manifest": "run.json cannot be read.",
    "no_traces": "The run has no readable trace.",
    "missing_traces": "Traces listed in run.json are missing or unreadable.",
    "run_failed": "The run failed.",
    "run_unfinished": "The run has not finished, or was killed.",
    "not_compiled": "Compilation was requested, but no graph was compiled.",
    "compilation_recorded": "torch compiled during recorded steps, so their times include compilation.",
    "oversubscribed": "CPU ranks use more threads than their host has cores.",
    "injected_delay": "A delay was injected on purpose (--inject).",
    "unreadable_sweep": "sweep.json cannot be read.",
    "point_failed": "A point of a sweep failed and left no run.",
    "sweep_points_pending": "Points of a sweep have not run yet.",
    # Comparisons and histories
    "too_few_repeats": "There are too few repeats to distinguish a change from noise.",
    "profiled_step_disagrees": "Steps with and without the profiler differ between runs in opposite directions.",
    "mixed_configurations": "The runs on one side of a comparison are not repeats of one configuration.",
    "configurations_differ": "The runs before and after differ in options.",
    "devices_differ": "The runs used different devices.",
    "versions_differ": "The runs used different package versions.",
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
    # Extensions
    "cross_check_failed": "The cross-check with another tool failed.",
    "insight_rule_failed": "An insight rule of a plug-in failed; its insights are left out.",
}
