"""The grammar of changes: what is written is what is read, and what cannot be read is refused with what is allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.engine.whatif.change import Change, ChangeError
from perfkit.engine.whatif.changes import CHANGES, parse_change, parse_changes
from perfkit.engine.whatif.effects.compute import ScaleCompute
from perfkit.engine.whatif.effects.device import FuseKernels, RemoveSync
from perfkit.engine.whatif.effects.gradients import Accumulate, BucketCap, NoSync, RemoveOverlap
from perfkit.engine.whatif.effects.host import RemoveProfiler, ScaleIdle, ScaleInput
from perfkit.engine.whatif.effects.modules import ScaleModule
from perfkit.engine.whatif.effects.ranks import ScaleRank
from perfkit.engine.whatif.effects.transfers import Ranks, ScaleBandwidth, ScaleCollective
from perfkit.engine.whatif.values import MOST_FACTOR
from perfkit.report.wording.whatif import word_refusal

EXAMPLES = [kind.example for kind in CHANGES]
_factors = st.integers(0, 1000 * int(MOST_FACTOR)).map(lambda thousandths: thousandths / 1000)
_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
_selectors = _names.filter(lambda name: not set("[]") & set(name))


@given(_names, _factors)
def test_names_are_read_as_written_whatever_they_contain(name: str, factor: float) -> None:
    for word, kind in (("compute", ScaleCompute), ("module", ScaleModule), ("idle", ScaleIdle)):
        assert parse_change(f"{word}:{name}={factor:.3f}x") == kind(name, factor)


@given(_selectors, _factors.filter(bool))
def test_selectors_are_read_as_written(selector: str, factor: float) -> None:
    assert parse_change(f"collective[{selector}]={factor:.3f}x") == ScaleCollective(selector, factor)
    assert parse_change(f"bandwidth[{selector}]={factor:.3f}x") == ScaleBandwidth(selector, factor)


@given(st.text() | st.sampled_from(EXAMPLES).flatmap(lambda usage: st.text().map(lambda rest: usage + rest)))
def test_any_other_text_is_a_usage_error_of_one_line(text: str) -> None:
    message = ""
    try:
        parse_change(text)
    except ChangeError as error:
        message = word_refusal(error)
    assert message.isprintable()


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("rank3=healthy", ScaleRank(3, None)),
        ("rank0=2x", ScaleRank(0, 2.0)),
        ("collective[dp+shard]=0", ScaleCollective("dp+shard", 0.0)),
        ("compute:void gemm<a=1, b[2]>(float)=.5x", ScaleCompute("void gemm<a=1, b[2]>(float)", 0.5)),
        ("input=0", ScaleInput(0.0)),
        ("input=0x", ScaleInput(0.0)),
        ("sync=removed", RemoveSync()),
        ("profiler=removed", RemoveProfiler()),
        ("overlap=removed", RemoveOverlap()),
        ("kernels<5us=fused", FuseKernels(5_000)),
        ("kernels<2.5 µs=fused", FuseKernels(2_500)),
        ("accumulate=4", Accumulate(4)),
        ("ranks=64", Ranks(64)),
        ("no_sync", NoSync()),
        ("bucket_cap=50MB", BucketCap(50_000_000)),
        ("bucket_cap=25MiB", BucketCap(26_214_400)),
    ],
)
def test_each_kind_of_change(text: str, change: Change) -> None:
    assert parse_change(text) == change


@pytest.mark.parametrize("usage", EXAMPLES)
def test_every_example_of_the_help_is_a_change(usage: str) -> None:
    assert parse_change(usage)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("sync", "compute:NAME=0.5x, module:PATH=0.7x"),
        ("computer:mm=0.5x", "there is no such change"),
        ("compute:=0.5x", "there is no such change"),
        ("rank-1=healthy", "there is no such change"),
        ("compute:mm=0.5", "0 or a factor up to 1000x"),
        ("compute:mm=-1x", "0 or a factor up to 1000x"),
        ("compute:mm=nanx", "0 or a factor up to 1000x"),
        ("compute:mm=1001x", "0 or a factor up to 1000x"),
        ("compute:mm=٣x", "0 or a factor up to 1000x"),
        ("rank1=sick", "healthy, 0 or a factor"),
        ("bandwidth[dp]=0", "a factor above 0"),
        ("sync=0", "'0' is not removed"),
        ("kernels<5=fused", "not a duration"),
        ("kernels<0us=fused", "not a duration"),
        ("kernels<5us=0", "'0' is not fused"),
        ("accumulate=0", "from 1 to 4096"),
        ("accumulate=1e9", "from 1 to 4096"),
        ("ranks=99999999999", "from 1 to 10000000"),
        ("no_sync=3", "'3' is not expected here"),
        ("bucket_cap=50", "a size from 1 B to 1 TiB"),
        ("bucket_cap=9999999GB", "a size from 1 B to 1 TiB"),
        ("compute:" + "a" * 500 + "=x", "…"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_allowed(text: str, allowed: str) -> None:
    with pytest.raises(ChangeError) as refused:
        parse_change(text)
    message = word_refusal(refused.value)
    assert message.startswith("change ")
    assert allowed in message
    assert len(message) < 500


def test_changes_that_contradict_each_other_are_refused_by_name() -> None:
    with pytest.raises(ChangeError) as refused:
        parse_changes(["accumulate=2", "input=0", "accumulate=4"])
    assert word_refusal(refused.value).startswith("changes accumulate=2 and accumulate=4 contradict")
    assert parse_changes(["compute:a=2x", "compute:*=0.5x"]) == [ScaleCompute("a", 2.0), ScaleCompute("*", 0.5)]
