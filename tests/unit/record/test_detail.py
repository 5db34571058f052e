"""`--detail`: what it switches on, and what it does not go with."""

import msgspec
import pytest

from perfkit.errors import UsageError
from perfkit.options.recording import RECORDED_FOR, refuse_contradiction
from perfkit.options.run import RunConfig
from perfkit.options.script import ScriptConfig
from perfkit.record.recording.profiler_options import ProfilerOptions

WHY = {"with_stack": True, "record_shapes": True, "profile_memory": True, "with_flops": False, "with_modules": False}


@pytest.mark.parametrize("config", [RunConfig, ScriptConfig])
def test_why_switches_on_the_options_that_the_manifest_then_has(config: type[RunConfig] | type[ScriptConfig]) -> None:
    recorded = msgspec.to_builtins(config(detail="why"))
    assert {name: recorded[name] for name in ProfilerOptions.__struct_fields__} == WHY
    assert recorded["detail"] == "why"
    assert not any(msgspec.to_builtins(config())[name] for name in WHY)


def test_a_single_option_stays_on() -> None:
    assert RunConfig(with_flops=True, with_stack=True).with_stack
    assert RunConfig(detail="why", with_flops=True).with_flops


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"profile": False}, "--detail why has no effect with --no-profile"),
        ({"pyinstrument": True}, "--detail why and --pyinstrument both need"),
    ],
)
def test_what_it_does_not_go_with(options: dict[str, bool], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RunConfig(detail="why", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("config", [RunConfig, ScriptConfig])
@pytest.mark.parametrize("name", ["with_stack", "record_shapes", "profile_memory", "with_flops", "with_modules"])
def test_options_of_the_profiler_are_refused_without_it(
    config: type[RunConfig] | type[ScriptConfig], name: str
) -> None:
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} has no effect with --no-profile"):
        config(profile=False, **{name: True})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", RECORDED_FOR["why"])
def test_what_it_needs_cannot_be_switched_off(name: str) -> None:
    with pytest.raises(UsageError, match=f"--detail why records what --no-{name.replace('_', '-')} switches off"):
        refuse_contradiction({"detail": "why", name: False})
    refuse_contradiction({"detail": "why", name: True})
    refuse_contradiction({"detail": "time", name: False})
    refuse_contradiction({name: False})
