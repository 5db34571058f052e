"""Registries: built-in names, entry points of installed packages, and plug-ins that are broken."""

import logging
import sys
from pathlib import Path

import pytest

from perfkit.errors import PluginError, UsageError
from perfkit.plugins import Registry, instance_of

GROUP = "perfkit.numbers"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path; `add` makes packages in it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def add(folder: Path, package: str, entries: dict[str, str], source: str = "") -> None:
    """Install a package as pip would leave it: a module and the metadata of its entry points."""
    (folder / f"{package}.py").write_text(source)
    metadata = folder / f"{package}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = "\n".join(f"{name} = {target}" for name, target in entries.items())
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}\n")


def registry() -> Registry[int]:
    return Registry(GROUP, "number", {"max": "sys:maxsize"}, instance_of(int, "number"))


def test_names_are_listed_without_importing(install: Path) -> None:
    add(install, "pk_lazy", {"two": "pk_lazy:TWO"}, "TWO = 2")
    found = registry()
    assert found.names() == ("max", "two")
    assert found.plugin_names() == ("two",)
    assert "two" in found
    assert "three" not in found
    assert "pk_lazy" not in sys.modules
    assert (found.load("max"), found.load("two")) == (sys.maxsize, 2)


def test_an_unknown_name_lists_those_there_are(install: Path) -> None:
    add(install, "pk_known", {"two": "pk_known:TWO"}, "TWO = 2")
    with pytest.raises(UsageError, match=r"^unknown number 'three': choose from max, two$"):
        registry().load("three")


def test_a_builtin_is_not_overridden(install: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(install, "pk_override", {"max": "pk_override:TWO"}, "TWO = 2")
    with caplog.at_level(logging.WARNING):
        found = registry()
        assert found.load("max") == sys.maxsize
        assert found.names() == ("max",)
    assert caplog.messages == ["number 'max' of pk_override 1.2 is ignored: perfkit already has one of that name"]


def test_of_two_plugins_of_one_name_the_first_by_package_counts(
    install: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(install, "pk_b", {"n": "pk_b:N"}, "N = 2")
    add(install, "pk_a", {"n": "pk_a:N"}, "N = 1")
    with caplog.at_level(logging.WARNING):
        assert registry().load("n") == 1
    assert caplog.messages == ["number 'n' of pk_b 1.2 is ignored: pk_a 1.2 already has one of that name"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 / 0", "number 'n' of pk_broken{} 1.2 cannot be loaded: ZeroDivisionError: division by zero"),
        (
            "",
            "number 'n' of pk_broken{} 1.2 cannot be loaded: AttributeError: module 'pk_broken{}' has no attribute 'N'",
        ),
        ("raise SystemExit(3)", "number 'n' of pk_broken{} 1.2 cannot be loaded: SystemExit: 3"),
        ("N = 'one'", "number 'n' of pk_broken{} 1.2 is not a number but a str"),
    ],
)
def test_a_broken_plugin_is_one_line_and_costs_nothing_else(
    install: Path, caplog: pytest.LogCaptureFixture, source: str, message: str
) -> None:
    unique = abs(hash(source)) % 10_000
    add(install, f"pk_broken{unique}", {"n": f"pk_broken{unique}:N"}, source)
    add(install, f"pk_sound{unique}", {"sound": f"pk_sound{unique}:N"}, "N = 3")
    wanted = message.replace("{}", str(unique))
    with pytest.raises(PluginError) as raised:
        registry().load("n")
    assert str(raised.value) == wanted
    with caplog.at_level(logging.WARNING):
        assert dict(registry().load_plugins()) == {"sound": 3}
    assert caplog.messages == [wanted]
