"""A finding or more for each sentence of `perfkit.report.wording.findings`, in the order of its table."""

from pathlib import Path
from typing import Any, Final

from perfkit.records.benchmark import SlowLink
from perfkit.records.benchmark import InputSeries
from perfkit.records.common import Observation
from perfkit.records.cross_rank import CategoryLag, EarlyRank, HostClock, LateLoading, OneOffStraggler
from perfkit.records.cross_rank import SlowTransfers, Straggler
from perfkit.records.kernel_rules import KernelRuleUse
from perfkit.records.per_rank.loading import SlowWorker
from perfkit.records.per_run.monitor import EarlyEnd, LateRank, PeriodicStall, SlowStep, StepTimeChange
from tests.support.reports.collective_builders import ALL_REDUCE

MS: Final = 10**6
S: Final = 10**9
_CHANGE: Final = StepTimeChange(step=6_000, exact=True, before_ns=50 * MS, after_ns=62 * MS)
_STALL: Final = PeriodicStall(period=500, first_step=500, last_step=9_500, count=19, expected=19, extra_ns=300 * MS)
_SLOW: Final = [
    SlowStep(first_step=1_234 * n, last_step=1_234 * n + n - 1, wall_ns=400 * n * MS, usual_ns=100 * MS, rank=0)
    for n in range(1, 6)
]
_LATE: Final = LateRank(rank=3, late_steps=4_000, steps=10_000, lag_ns=10 * MS, first_step=6_000)
_PAIRS: Final = [((0, 100, "a"), (3, 200, "b")), ((1, 101, "a"), (None, 201, "b"))]
_HDF5: Final = InputSeries(source="hdf5", read="per-sample", num_workers=2)
_STRANGER: Final = {"name": "strange", "kernels": 12, "other_names": 0, "ns": 3 * MS, "share": 0.031}

TRACES: Final = [
    Observation("not_a_trace", {"error": "notes.json: not a profiler trace"}),
    Observation("unreadable_trace", {"error": "rank1.json: not JSON"}),
    Observation("worker_lost", {"path": "run/rank1.json", "error": "it needs more memory than available"}),
    Observation("subject_failed", {"error": "subject 'mine' of mypackage 1.0 failed: KeyError: 3"}),
    Observation("damaged_trace", {"damage": "ends within an event"}),
    Observation("damaged_header", {"damage": "no device list"}),
    Observation("skipped_events", {"count": 1, "noun": "event", "what": "without a usable start, skipped"}),
    Observation("repaired_events", {"count": 1_200, "noun": "event", "what": "of negative duration, set to 0"}),
    Observation("unknown_events", {"count": 7, "categories": [("npu_kernel", 5), ("x", 2)], "more": 0}),
    Observation("unknown_events", {"count": 9, "categories": [("npu_kernel", 5)], "more": 3}),
    Observation("timestamp_gap", {"gap_ns": 9_000_000 * S}),
    Observation("no_host_operators"),
    Observation("no_device_events", {"signs": ["launches", "backend", "collectives"], "backend": "nccl"}),
    Observation("names_cut", {"names": 70_000, "listed": 5_000, "others": 65_000, "share": 0.034}),
    Observation("possible_communication", {**_STRANGER, "beside_communication": True}),
    Observation("possible_communication", {**_STRANGER, "kernels": 1, "other_names": 1, "beside_communication": False}),
    Observation("possible_communication", {**_STRANGER, "kernels": 1, "beside_communication": False}),
    Observation("kernel_rules_unused", {"unused": [(1, KernelRuleUse(pattern="a" * 70)), (3, KernelRuleUse(pattern="b"))]}),
    Observation("kernel_rules_unused", {"unused": [(n, KernelRuleUse(pattern="c", matched_kernels=1)) for n in range(1, 8)]}),
    Observation("graphs_hide_operators", {"share": 0.75, "launches": 1}),
    Observation("graphs_hide_operators", {"share": 0.75, "launches": 1_200}),
    Observation("compilation_hides_operators", {"share": 0.5}),
    Observation("launches_missing", {"activities": 1_000, "of": 2_000, "share": 0.5}),
    Observation("kernels_lost", {"launches": 10, "of": 32, "lossy": 2, "steps": 4, "judged": [5, 6]}, "some"),
    Observation("kernels_lost", {"launches": 1, "of": 3_200}, "all"),
    Observation("impossible_times", {"activities": 1, "of": 240, "removed_ns": 1_600 * MS}),
    Observation("device_clock_differs", {"ns": 29_100_000}, "behind"),
    Observation("device_clock_differs", {"ns": 10 * S}, "ahead"),
    Observation("device_clock_differs", {"ns": 16_300_000}, "drifts"),
    Observation("collective_sizes_unmatched", {"unmatched": 2, "of": 2, "operators": ["recv", "send"]}),
    Observation("collective_sizes_unmatched", {"unmatched": 3, "of": 4, "operators": ["broadcast", "send"]}),
    Observation("no_steps", {"marker": None, "source": "trace"}),
    Observation("no_steps", {"marker": "train.*", "source": "trace"}),
    Observation("no_steps", {"marker": None, "source": "optimizer"}),
    Observation("no_steps", {"marker": None, "source": "loader"}),
    Observation("steps_of_device"),
    Observation("time_between_steps", {"ns": 2_030_000_000, "share": 0.78}),
    Observation("no_marked_loading", {"marker": "get_batch", "functions": False}),
    Observation("steps_cut", {"steps": 30_000, "analysed": 20_000, "quantiles_ns": [1e6, 2e6, 3e6, 4e6, 5e6], "longest": 7}),
    Observation("repeated_steps", {"restarts": 2}),
    Observation("steps_missing", {"missing": 1}),
    Observation("steps_without_device_work", {"idle": 2, "steps": 5}),
    Observation("work_before_steps", {"activities": 3}),
]
RANKS: Final = [
    Observation("rank_unknown", {"traces": 1, "apart": False}, severity="info"),
    Observation("rank_unknown", {"traces": 2, "apart": False}),
    Observation("rank_unknown", {"traces": 2, "apart": True}),
    Observation("rank_name_mismatch", {"claims": [("rank1.json", 0)]}),
    Observation("header_ranks_ignored", {"rank": 0, "files": ["a", "b", "c", "d"], "ignored": [("rank1.json", 0)]}),
    Observation("duplicate_rank", {"rank": 1, "size": 4, "other": "rank1.json", "other_size": 2}, "world_size"),
    Observation("duplicate_rank", {"rank": 1, "other": "rank1.json"}),
    Observation("multiple_traces_per_rank", {"traces": 3, "rank": 1}),
    Observation("world_size_unknown", {"backends": ["gloo", "nccl"]}),
    Observation("world_size_unknown", {"backends": []}),
    Observation("rank_out_of_range", {"rank": 4, "world_size": 4}),
    Observation("ranks_missing", {"missing": 1, "of": 4, "absent": [3], "chosen": False}),
    Observation("ranks_missing", {"missing": 99, "of": 200, "absent": list(range(0, 198, 2)), "chosen": False}),
    Observation("ranks_missing", {"missing": 2, "of": 3, "absent": [], "chosen": True}),
    Observation("ranks_missing", {"chosen": [0], "world_size": 4}, "not_chosen", "info"),
    Observation("ranks_missing", {"chosen": [0, 1], "world_size": 4}, "not_chosen", "info"),
    Observation("mixed_devices"),
    Observation("no_collectives", {"silent": 1, "traces": 2, "world_size": 2, "has_group": True}),
    Observation("no_collectives", {"silent": 2, "traces": 2, "world_size": 2, "has_group": False}),
    Observation("uneven_steps", {"rank": 1, "steps": 3, "most": 5}),
    Observation("collectives_unmatched", {"calls": 2, "of": 10}),
    Observation("collectives_unmatched", {"calls": 2, "of": 10}, "messages"),
    Observation("suspect_matches", {"apart": 3, "of": 40}),
    Observation("groups_incomplete", {"short": 3, "of": 40, "size": 8, "present": 2}),
    Observation("groups_incomplete", {"short": 3, "of": 40}, "unknown_size"),
    Observation(
        "clocks_differ",
        {"apart": 1, "clocks": 2, "first_rank": 0, "most": HostClock(host="b", ranks=[1], offset_ns=-3 * S)},
    ),
    Observation(
        "clocks_differ",
        {"apart": 1, "clocks": 2, "first_rank": 0, "most": HostClock(host=None, ranks=[1], offset_ns=3 * S)},
    ),
    Observation("start_skew", {"first_ns": 300 * MS, "usual_ns": 1e6, "has_later": True}),
    Observation("start_skew", {"first_ns": 300 * MS, "usual_ns": 1e6, "has_later": False}),
    Observation("timelines_disagree", {"replayed_ns": 200 * MS, "measured_ns": 100 * MS}),
    *(Observation("critical_path_unknown", {"reason": why}) for why in ("mixed_jobs", "unranked", "different_steps")),
]
RUNS: Final = [
    Observation("no_traces"),
    Observation("no_traces", case="not_profiled", severity="info"),
    Observation("unreadable_manifest", {"error": "run.json: not JSON"}),
    Observation("missing_traces", {"files": ["rank1.json"]}),
    Observation("missing_traces", {"files": ["rank1.json", "rank2.json"]}),
    Observation(
        "run_failed", {"rank": 1, "failure": "OutOfMemoryError", "step": 25, "at": "2026-11-27T13:53:51+00:00"}
    ),
    Observation("run_failed", {"rank": None, "failure": None, "step": None, "at": None}),
    *(
        Observation(
            "run_hung",
            {
                "step": 40,
                "at": "2026-11-27T13:54:02+00:00",
                "idle_ns": 2100 * MS,
                "ranks": ranks,
                "headline": "rank 0 waits",
            },
        )
        for ranks in ([], [1], [1, 2])
    ),
    Observation("hangs_unread", {"error": "hangs.json is not a list of hangs: it is cut"}),
    Observation("run_unfinished"),
    Observation("has_captures", {"folder": Path("my run"), "names": ["capture-1", "2", "3", "4", "5"]}),
    Observation("captured_after_condition", {"reason": "step 7 took 3x", "condition": "slow > 2x"}),
    Observation("incomplete_capture", {"rank": 1, "problem": "it ended"}),
    Observation("not_compiled"),
    Observation("compilation_recorded", {"steps": [3], "longest_ns": 2 * S, "step": 3, "rank": None}),
    Observation("compilation_recorded", {"steps": [3, 4], "longest_ns": 2 * S, "step": 3, "rank": 1}),
    Observation("compilation_recorded", {"recorded": [3, 4, 6]}, "manifest"),
    Observation("oversubscribed", {"ranks": 2, "host": "a", "threads": 8, "cores": 4}),
    Observation("same_batches", {"ranks": 2, "steps": 4}),
    Observation("replicas_differ", {"ranks": [1], "count": 2240}),
    Observation("replicas_differ", {"ranks": [1, 2, 3], "count": 2240}),
    Observation("injected_delay", {"delay_ns": 60 * MS, "phase": "backward", "rank": 1}),
    Observation("injected_delay", {"delay_ns": 60 * MS, "phase": "backward", "rank": None}),
    Observation("several_jobs", {"folder": "runs", "labels": ["1", "2", "3", "4", "5"]}),
    Observation("not_a_regular_file", {"names": ["pipe"]}),
    Observation("not_a_regular_file", {"names": ["1", "2", "3", "4", "5", "6"]}),
    Observation("unreadable_sweep", {"error": "sweep.json: not JSON"}),
    Observation("point_failed", {"sweep": "sweep", "run": "2", "reason": "cause unknown"}),
    Observation("sweep_points_pending", {"sweep": "sweep", "pending": 3, "points": 9}),
    Observation("other_network_measured", {"what": "backend", "own": ["nccl"], "measured": ["gloo"]}),
    Observation("not_measured", {"ranks": 4, "wanted": [("all_reduce", size) for size in (2, 4, 8, None)]}),
    Observation("not_measured", case="unknown"),
    Observation("not_measured", case="ranks_missing"),
    Observation("cross_check_failed", {"error": "cross-check 'hta' failed"}),
    Observation("ranks_not_replayed", {"missing": 3, "of": 4, "unaligned": 0}),
    Observation("ranks_not_replayed", {"missing": 3, "of": 4, "unaligned": 2}),
    Observation("steps_not_replayed", {"recorded": 9, "steps": [4]}),
    Observation("steps_not_replayed", {"recorded": 9, "steps": [4, 5, None]}),
    Observation("dependencies_contradicted", {"violated": 1_200}),
    Observation("waits_unknown", {"rank": 3, "per_step_ns": 12e6}),
    Observation("waits_unknown", {"rank": None, "per_step_ns": 12e6}),
]
MONITOR: Final = [
    Observation("step_time_changed", {"change": _CHANGE, "following": None}),
    Observation(
        "step_time_changed",
        {
            "change": StepTimeChange(
                step=60, exact=False, before_ns=50 * MS, after_ns=40 * MS, ranks=[2, 3], rank_count=9, part="forward"
            ),
            "following": _CHANGE,
        },
    ),
    Observation(
        "step_time_changed",
        {
            "change": StepTimeChange(
                step=60, exact=False, until_step=900, before_ns=50 * MS, after_ns=70 * MS, part="data_loading"
            ),
            "following": None,
        },
    ),
    Observation("periodic_stalls", {"stall": _STALL}),
    Observation(
        "periodic_stalls",
        {
            "stall": PeriodicStall(
                period=3, first_step=0, last_step=9, count=3, expected=4, extra_ns=9, rank=1, part="pause"
            )
        },
    ),
    Observation("slow_steps", {"steps": _SLOW[:1], "count": 1}),
    Observation("slow_steps", {"steps": _SLOW, "count": 5}),
    Observation("rank_late_over_run", {"late": [_LATE], "count": 1}),
    Observation("rank_late_over_run", {"late": [_LATE], "count": 3}),
    *(
        Observation("loss_not_a_number", dict(zip(("first_step", "steps", *_LOSS), values, strict=True)))
        for _LOSS in [("lasting", "rolled_up", "or_before", "ranks")]
        for values in [
            (3, 2, True, False, False, []),
            (500, 2, True, True, True, [1, 2]),
            (1, 1, False, False, False, [1]),
            (1, 2, False, False, False, []),
        ]
    ),
    Observation("monitor_log_ends_early", {"ends": [EarlyEnd(rank=1, last_step=700)], "count": 1, "last_step": 9_000}),
    Observation(
        "monitor_log_ends_early",
        {"ends": [EarlyEnd(rank=rank, last_step=700) for rank in range(2)], "count": 5, "last_step": 9_000},
    ),
    Observation("monitor_log_unread", {"error": "rank1.steps: not a log", "logs": 2}),
    Observation("monitor_log_unread", {"file": "rank1.steps", "logs": 1, "records": 2_000_000}, "cut"),
    Observation("monitor_log_unread", {"file": "rank1.steps", "logs": 2, "records": 1}, "damaged"),
    Observation("monitor_log_unread", {"file": "rank1.steps", "logs": 1, "records": 1_000}, "damaged"),
]
LOGS: Final = [
    Observation("nccl_some_sockets", {"slow": _PAIRS[:1], "others": 1, "transports": ["NET/IB"]}),
    Observation("nccl_some_sockets", {"slow": _PAIRS * 3, "transports": ["NET/IB"]}, "unknown_ends"),
    *(Observation("nccl_only_sockets", {"slow": _PAIRS, "why": why}) for why in ("", "disabled", "no_infiniband")),
    Observation("nccl_shared_memory", {"host": "a", "shared": _PAIRS, "direct": 3}),
    *(
        Observation("nccl_disabled", {"name": name, "value": "1", "known": 4, "processes": 4, "one_host": False})
        for name in ("NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
    ),
    Observation("nccl_disabled", {"name": "NCCL_IB_DISABLE", "value": "1", "known": 0, "processes": 4, "one_host": True}),
    Observation("nccl_versions_differ", {"versions": [("NCCL 2.19", [2]), ("NCCL 2.21", [0, 1])]}),
    Observation("nccl_warnings", {"count": 1, "first": "Timeout", "rank": None}),
    Observation("nccl_warnings", {"count": 1_000, "first": "Timeout", "rank": 1}),
    Observation("nccl_timeout", {"first": "WorkNCCL(SeqNum=7)"}),
    Observation("nccl_ranks_differ", {"logged": 4, "world_size": 2}),
    Observation("one_ccl_sockets", {"providers": ["tcp", "udp"], "others": ["verbs"]}),
    Observation("one_ccl_sockets", {"providers": ["tcp"], "others": []}),
    Observation("one_ccl_pcie", {"text": "topology recognition shows PCIe connection"}),
    Observation("one_ccl_warnings", {"count": 1, "first": "no huge pages"}),
    Observation("one_ccl_warnings", {"count": 1_000, "first": "no huge pages"}),
    Observation("one_ccl_errors", {"count": 1, "first": "no device"}),
    Observation("one_ccl_errors", {"count": 1_000, "first": "no device"}),
    Observation("nccl_log_unread", {"error": "a.log: cannot be read"}),
    Observation("nccl_log_unread", {"folder": "run"}, "large", "info"),
]
SEVERAL: Final = [
    Observation("too_few_repeats", {"before": 1, "after": 2, "fewest": 3, "assumed_noise": None}),
    Observation("too_few_repeats", {"before": 2, "after": 1, "fewest": 3, "assumed_noise": 0.03}),
    Observation("too_few_repeats", {"fewest": 3}, "benchmark", "info"),
    Observation("no_scaling_series", {"sizes": [1, 2], "run": "imported"}, "manifest"),
    Observation("no_scaling_series", {"sizes": [1, 2], "run": "run", "reason": "no warm step was timed"}, "steps"),
    Observation("no_scaling_series", {"sizes": [1, 2, 4], "run": "run"}, "samples"),
    Observation("no_scaling_series", {"sizes": [1, 2], "options": {"lr": ["1", "2"], "batch_size": ["8", "4"]}}, "options"),
    Observation("no_scaling_series", {"sizes": [1, 2], "batches": {1: 8, 2: 6}}, "batch"),
    Observation("profiled_step_disagrees", {"plain": 1.05, "profiled": 0.9}),
    Observation(
        "profiled_step_disagrees",
        {
            "option": "overlap",
            "value": "on",
            "baseline": "off",
            "plain_ns": (100e6, 90e6),
            "profiled_ns": (110e6, 120e6),
        },
        "order",
    ),
    Observation("mixed_configurations", {"side": "before", "options": {"batch_size": ["32", "64"]}}),
    Observation("configurations_differ", {"options": {name: ["1", "2", "3", "4"] for name in "abcdefg"}}),
    Observation("configurations_differ", {"settings": {"threads": (1, 2), "backend": ("gloo", "nccl")}}, "benchmark"),
    Observation("configurations_differ", {"where": " on as many ranks"}, "nothing_common", "warning"),
    Observation("devices_differ", {"devices": [["H100"], ["H100", "H200"]]}),
    Observation("versions_differ", {"versions": {name: [["1"], ["1", "2"]] for name in "abcdefg"}}),
    Observation("versions_differ", {"versions": {"torch": ("2.7", "2.8")}}, "benchmark"),
    Observation("models_differ", {"names": [["gpt"], ["gpt", "transformer"]]}),
    Observation("models_differ", {"per_sample": (2e9, 4e9)}, "operations"),
    Observation("samples_per_step_differ", {"before": ["64"], "after": ["128", "64"]}),
    Observation("ranks_differ", {"before": ["1"], "after": ["4"]}),
    Observation("ranks_differ", {"before": ["2", "4"], "after": ["4"]}),
    Observation("run_excluded", {"run": "3", "reason": "its state is failed"}),
    Observation("oversubscribed", {"ranks": 4, "host": "a", "cores": 1}, "benchmark"),
    Observation("unsupported_collective", {"series": ALL_REDUCE, "backend": "gloo", "error": "not implemented"}),
    Observation("wrong_results", {"wrong": [(ALL_REDUCE, 4_000, 1_000)] * 4}),
    Observation("slow_link", {"link": SlowLink(kind="pair", ranks=[0, 1], measure="latency", ratio=3.0)}),
    Observation("slow_link", {"link": SlowLink(kind="rank", ranks=[1], measure="bandwidth", ratio=3.0)}),
    Observation("slow_link", {"link": SlowLink(kind="host", ranks=[2, 3], host="b", measure="bandwidth", ratio=3.0)}),
    Observation("different_batches", {"series": _HDF5, "reference": InputSeries(source="zarr", read="batched", num_workers=0)}),
    Observation("cache_not_dropped", {"source": "hdf5", "share": None}),
    Observation("cache_not_dropped", {"source": "hdf5", "share": 0.5}),
    Observation("not_cached", {"source": "hdf5", "share": 0.5}),
    Observation("one_stripe", {"source": "hdf5", "each_bytes": 2e9}),
]

def _late(rank: int = 1, ms: float = 20, gain_ms: float = 20, **other: Any) -> Straggler:
    values: dict[str, Any] = {"category": "overhead", "share": 0.2, "steps": 20, "steps_late": 20, "steps_last": 18}
    return Straggler(rank=rank, lag_ns=round(ms * MS), gain_ns=round(gain_ms * MS), **values | other)


def _in_turns(rank: int, every: int = 2, steps: int = 10) -> Straggler:
    return _late(rank, gain_ms=0, every=every, in_turns=True, one_at_a_time=True, steps_late=steps)


_LOADING: Final = LateLoading(
    cause="slow_worker", worker=SlowWorker(worker=1, ns=150 * MS, usual_ns=MS, ranks=1, of=2)
)
_OTHERWISE: Final = [CategoryLag(category="data_loading", lag_ns=9 * MS)]
_ONCE: Final[dict[str, Any]] = {"rank": 1, "step": 7, "category": "overhead", "lag_ns": 60 * MS, "category_ns": 58 * MS}
_BY_GAIN_MS: Final[list[tuple[list[Straggler], int]]] = [
    ([_late()], 20),
    ([_late(ms=34, gain_ms=32)], 32),
    ([_late(gain_ms=5)], 5),
    ([_late(gain_ms=50)], 50),
    ([_late(gain_ms=0)], 0),
    ([_late(delays=[3, 5])], 20),
    ([_late(category="compute", phase="forward")], 20),
    ([_late(category="data_loading", loading=_LOADING)], 20),
    ([_late(ms=29, gain_ms=29, also=_OTHERWISE)], 29),
    ([_late(every=2, steps_late=10, gain_ms=10)], 10),
    ([_late(every=3, steps_late=6, ms=29, gain_ms=6, also=_OTHERWISE)], 6),
    ([_late(every=5, steps_late=4, gain_ms=4)], 4),
    ([_late(2, steps_late=8, gain_ms=8)], 8),
    ([_late(2, steps_late=8, gain_ms=8, first_step=14)], 8),
    ([_late(2, steps_late=8, gain_ms=8, last_step=9, also=_OTHERWISE)], 8),
    ([_late(2, steps_late=8, gain_ms=8, first_step=4, last_step=11)], 8),
    ([_late(1, gain_ms=0.1), _late(3, gain_ms=0.1)], 20),
    ([_late(0, delays=[1]), _late(3, gain_ms=15, delays=[2])], 35),
    ([_late(0), _late(category="data_loading", loading=_LOADING)], 40),
    ([_late(2, 60, 13, every=3, steps_late=6), _late(1, 40, 13, every=2, steps_late=10)], 33),
    ([_in_turns(1), _in_turns(0)], 20),
    ([_in_turns(3, 1, 13), _in_turns(1, 1, 7)], 20),
    ([_in_turns(rank, 1, 5) for rank in range(4)], 20),
    ([_in_turns(rank, 1, 4) for rank in range(5)], 20),
    ([_in_turns(rank) for rank in range(4)], 20),
    ([_in_turns(0), _in_turns(1), _late(4, 24)], 24),
    ([_late(rank, gain_ms=0) for rank in range(30)], 20),
]
LATE: Final = [
    *(
        Observation("straggler", {"stragglers": rows, "gain_ns": gain_ms * MS, "profiler_ns": 0, "partial": False})
        for rows, gain_ms in _BY_GAIN_MS
    ),
    *(
        Observation("straggler", {"stragglers": [_late(category=category)], "gain_ns": 20 * MS, "profiler_ns": ms * MS, "partial": True})
        for category in ("overhead", "data_loading")
        for ms in (9, 11)
    ),
    *(
        Observation("one_off_straggler", {"late": OneOffStraggler(**_ONCE | other)})
        for other in ({}, {"with_ranks": [3], "category": None}, {"is_first": True}, {"step": 0, "is_first": True})
    ),
    *(
        Observation("slow_transfers", {"slow": SlowTransfers(ratio=2.13, **where)})
        for where in (
            {"hosts": ["node2"]},
            {"hosts": ["node0", "node2"]},
            {"ranks": [3, 11, 19, 27]},
            {"ranks": [3]},
            {"steps": [12]},
            {"steps": [12, 15]},
            {"steps": [1, 2, 5, 6]},
        )
    ),
    *(
        Observation("early_ranks", {"early": [EarlyRank(rank=0, lead_ns=30 * MS)], "besides_late": late})
        for late in (False, True)
    ),
]

EXAMPLES: Final = [*TRACES, *RANKS, *LATE, *RUNS, *MONITOR, *LOGS, *SEVERAL]
