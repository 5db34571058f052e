"""Rules for kernel names in a file, and everything that can be wrong with one."""

from pathlib import Path

import pytest

import perfkit
from perfkit.cli import main
from perfkit.errors import UsageError
from perfkit.records.kernel_rules import KernelRule
from perfkit.storage.kernel_rules_file import load_kernel_rules
from tests.support.traces.trace_builder import TraceBuilder

GOOD = """
[[rule]]
pattern = "acme::exchange"
kind = "communication"
source = "our all-to-all"

[[rule]]
pattern = 'acme_wait\\w*$'
kind = "wait"
"""


def test_rules_are_read_in_order(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(GOOD)
    expected = (
        KernelRule("acme::exchange", "communication", "our all-to-all"),
        KernelRule(r"acme_wait\w*$", "wait"),
    )
    assert load_kernel_rules(file) == load_kernel_rules(str(file)) == load_kernel_rules(expected) == expected
    assert load_kernel_rules(None) == ()


def test_a_rule_with_a_class_is_for_kernels_that_compute(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text("[[rule]]\npattern = 'acme'\nclass = 'attention'")

    assert load_kernel_rules(file) == (KernelRule("acme", "compute", kernel_class="attention"),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[rule]", "not valid TOML: "),
        ("", "no rule: each begins with a line [[rule]]"),
        ("rule = 3", "no rule: each begins with a line [[rule]]"),
        ("pattern = 'x'\n" + GOOD, "pattern is not part of a rule: put it below a line [[rule]]"),
        (GOOD + "sort = 'x'", "rule 2: unknown key sort: a rule has pattern, kind, class, source"),
        ("[[rule]]\nkind = 'wait'", "rule 1: pattern is missing"),
        ("[[rule]]\npattern = 'x'", "rule 1: kind or class is missing"),
        ("[[rule]]\npattern = 3\nkind = 'wait'", "rule 1: pattern is not a text: 3"),
        ("[[rule]]\npattern = 'x'\nkind = 'comm'", "'comm' is none of communication, compute, memcpy, wait"),
        ("[[rule]]\npattern = 'x'\nclass = 'matmul'", "rule 1: class 'matmul' is none of gemm, attention, "),
        ("[[rule]]\npattern = 'x'\nclass = 'copy'", "rule 1: class 'copy' is none of gemm, attention, "),
        (
            "[[rule]]\npattern = 'x'\nkind = 'memcpy'\nclass = 'gemm'",
            "rule 1: class 'gemm' is for kernels that compute, not for kind 'memcpy'",
        ),
        ("[[rule]]\npattern = '('\nkind = 'wait'", "pattern '(' is not a regular expression: "),
        ("[[rule]]\npattern = 'x|'\nkind = 'wait'", "pattern 'x|' matches every name"),
    ],
)
def test_every_problem_is_one_line_that_names_the_file(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_kernel_rules(file)
    message = str(caught.value)
    assert message.startswith(f"--kernel-rules {file}: ")
    assert "\n" not in message
    assert problem in message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_kernel_rules(tmp_path / "none.toml")


def test_rules_change_the_analysis_and_its_cached_result(tmp_path: Path) -> None:
    builder = TraceBuilder(world_size=2).step(0, 0, 100).kernel("gemm", 0, 40)
    builder.kernel("acme::exchange<8>(int*)", 50, 30).kernel("acme_wait_event", 80, 20)
    path = builder.write(tmp_path / "rank0.json")
    file = tmp_path / "rules.toml"
    file.write_text(GOOD)

    def exposed(rules: Path | None) -> tuple[int, int]:
        (step,) = perfkit.analyze(path, kernel_rules=rules).runs[0].ranks[0].steps
        return step.exposed_ns.compute, step.exposed_ns.communication

    for _ in range(2):  # the second time from the cache
        assert exposed(None) == (90_000, 0)
        assert exposed(file) == (40_000, 30_000)


def test_a_users_class_comes_before_all_others(tmp_path: Path) -> None:
    builder = TraceBuilder(world_size=1).step(0, 0, 200)
    builder.annotation("Optimizer.step#SGD.step", 0, 100)
    for k, name in enumerate(("void acme::fused_mlp<nccl>(int*)", "sgemm_nt", "acme_update", "reduce_kernel")):
        builder.launch(k + 1, 5 + 10 * k, 2).kernel(name, 10 + 10 * k, 5 + k, k + 1)
    path = builder.write(tmp_path / "rank0.json")
    rules = [
        KernelRule("acme::fused", "compute", kernel_class="attention"),
        KernelRule("acme_update", "communication"),
        KernelRule("sgemm", "compute"),
    ]

    def classes(rules: list[KernelRule]) -> dict[str, int]:
        (rank,) = perfkit.analyze(path, kernel_rules=rules).runs[0].ranks
        assert rank.work is not None
        return {row.kernel_class: row.total_ns for row in rank.work.classes}

    # In an optimizer's pass everything else is the optimizer's.
    assert classes([]) == {"optimizer": 26_000}
    assert classes(rules) == {"attention": 5_000, "communication": 7_000, "optimizer": 14_000}
    assert classes([KernelRule("acme_update", "memcpy"), *rules[:1]]) == {
        "attention": 5_000,
        "copy": 7_000,
        "optimizer": 14_000,
    }


def test_rules_without_effect_are_reported_wherever_rules_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(
        "[[rule]]\npattern = 'acme'\nkind = 'communication'\n[[rule]]\npattern = 'acne::'\nkind = 'wait'\n"
        "[[rule]]\npattern = 'acme::layout'\nkind = 'compute'\n[[rule]]\npattern = 'other'\nclass = 'gemm'\n"
    )
    runs = [tmp_path / name for name in ("a", "b")]
    for run, own in zip(runs, ("acme::layout", "other_mm"), strict=True):
        run.mkdir()
        for rank, name in enumerate((own, "acme::exchange")):
            trace = TraceBuilder(rank, 2).step(0, 0, 100).op("aten::mm", 0, 10).launch(1, 1, 2)
            trace.kernel(f"void {name}<int>(int*)", 10, 50, 1).write(run / f"rank{rank}.json")
    said = "rule 2 (acne::) matches no kernel, rule 3 (acme::layout) comes after rules that match its kernels"
    both = f"rules for kernels without effect: {said}"
    report = perfkit.analyze(*runs, kernel_rules=file)
    assert [one.message for one in report.findings if one.code == "kernel_rules_unused"] == [both]
    assert [(use.matched_kernels, use.decided_kernels) for use in report.kernel_rules] == [
        (3, 3),
        (0, 0),
        (1, 0),
        (1, 1),
    ]
    compared = perfkit.compare(*runs, kernel_rules=file)  # what one side alone has is no mistake in the rules
    assert [one.message for one in compared.findings if one.code == "kernel_rules_unused"] == [both]
    alone = f"rules for kernels without effect: {said}, rule 4 (other) matches no kernel"
    assert alone in [one.message for one in perfkit.predict(runs[0], kernel_rules=file).findings]
    for command in ("merge", "stacks"):
        output = tmp_path / {"merge": "a.pftrace", "stacks": "a.collapsed"}[command]
        assert main([command, str(runs[0]), "-o", str(output), "--ranks", "1", "--kernel-rules", str(file)]) == 0
        assert f"perfkit: warning: {alone}\n" in capsys.readouterr().err
    assert perfkit.analyze(*runs).kernel_rules == perfkit.analyze(*runs, kernel_rules=()).kernel_rules == []


def test_rules_that_all_have_an_effect_need_no_finding(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1).step(0, 0, 100).kernel("gemm", 0, 40).write(tmp_path / "rank0.json")
    report = perfkit.analyze(trace, kernel_rules=[KernelRule("gemm", "compute")])
    assert "kernel_rules_unused" not in {finding.code for finding in report.findings}
