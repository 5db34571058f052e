"""The catalogue of finding codes; `tests/unit/report/wording` compares it with the sources."""

from perfkit.pipeline import analyze
from perfkit.records.findings import FINDING_CODES
from perfkit.subjects.comparison import gates


def test_codes_that_decide_something_are_in_the_catalogue() -> None:
    assert set(FINDING_CODES) >= gates._INCOMPLETE
    assert set(FINDING_CODES) >= {*analyze._UNREADABLE, *analyze._NOT_A_RUN}


def test_descriptions_are_one_sentence() -> None:
    for code, description in FINDING_CODES.items():
        assert code == code.lower()
        assert description[0].isupper() or description.startswith(("run.json", "sweep.json", "torch", "oneCCL")), code
        assert description.endswith("."), code
        assert "\n" not in description
