"""The generated parts of the site: help texts, fields of JSON files, and links."""

from docs.generator import commands, json_fields
from docs.generator.links import for_site


def test_commands_have_their_subcommands() -> None:
    assert commands.subcommands(commands.help_of("data")) == ["prepare"]
    assert commands.subcommands(commands.help_of("analyze")) == []
    assert "--offline" in commands.help_of("view")


def test_every_file_and_field_is_in_the_reference() -> None:
    text = json_fields.reference()
    assert "| `report` | output of `perfkit analyze --json` | [Report](#report) |" in text
    assert "| `runs` | list of [RunReport](#runreport) |  |" in text
    assert "| `multi_run` | [MultiRunSummary](#multirunsummary) or null, optional | None unless" in text


def test_types_are_written_in_words() -> None:
    assert json_fields.kind_of({"enum": ["a", "b"]}) == "`a` or `b`"
    assert json_fields.kind_of({"type": "object", "additionalProperties": {"type": "integer"}}) == "object of integer"


def test_links_follow_pages_that_the_site_has_elsewhere() -> None:
    assert for_site("[plan](docs/plan.md#memory)", "index.md") == "[plan](plan.md#memory)"
    assert for_site("[safe](../../SECURITY.md)", "how-to/ci.md") == "[safe](../project/security.md)"
    assert for_site("[numbers](../docs/metrics.md)", "project/contributing.md") == "[numbers](../metrics.md)"


def test_links_to_what_the_site_has_not_become_text() -> None:
    assert for_site("see [tests](tests/plugins)", "index.md") == "see tests"
    assert for_site("[out](https://example.org/a.md)", "index.md") == "[out](https://example.org/a.md)"
    assert for_site("```text\n[a](tests/plugins)\n```", "index.md") == "```text\n[a](tests/plugins)\n```"
