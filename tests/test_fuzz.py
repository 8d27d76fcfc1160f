"""The list of known differences of the fuzzer. `make fuzz` and `make test-more` run the fuzzer itself."""

from __future__ import annotations

from fuzz.__main__ import Finding, known_reason, read_known


def test_known_differences_have_reasons() -> None:
    for row in read_known():
        assert len(row) == 4, f"{row}: function | backend:form | pattern | reason"
        assert len(row[3]) > 20, f"{row}: the reason is too short"


def test_a_known_difference_is_matched_in_all_its_places() -> None:
    rows = [["sort", "torch:*", "dtype", "a reason"]]
    assert known_reason(Finding("sort", "torch:array torch:native", "dtype int32", ""), rows) == "a reason"
    assert known_reason(Finding("sort", "torch:array jax:native", "dtype int32", ""), rows) is None
    assert known_reason(Finding("sort", "torch:array", "shape (2,)", ""), rows) is None
