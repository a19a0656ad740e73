"""The ladder as a figure."""

from __future__ import annotations

import io
import sys

import pytest

from unstarve.errors import UsageError
from unstarve.render.plot import plot
from unstarve.report import Report


def test_missing_matplotlib_is_named(toy: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib the error says which extra to install."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"unstarve\[plot\]"):
        plot(toy)


def test_ladder_is_drawn_from_the_top(toy: Report) -> None:
    """Each rung of the ladder is a bar of its rate, the device at the top, knock-outs left out."""
    pytest.importorskip("matplotlib")
    axes = plot(toy).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert (labels[0], labels[-1]) == ("batch cached on the device", "nothing cached")
    assert [bar.get_width() for bar in axes.patches] == [rung.steps_per_s.value for rung in toy.rungs[:10]]
    assert axes.yaxis_inverted()


@pytest.mark.filterwarnings("ignore:Glyph")
def test_any_report_can_be_drawn(hostile: Report, minimal: Report) -> None:
    """Names with dollar signs are no formulas, and a report without rungs is an empty figure."""
    pytest.importorskip("matplotlib")
    for report in (hostile, minimal):
        file = io.BytesIO()
        plot(report).savefig(file, format="png")
        assert file.getvalue().startswith(b"\x89PNG")
