"""The ladder as a matplotlib figure. matplotlib is an extra, so it is imported only when a figure is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unstarve import render as view
from unstarve.errors import UsageError
from unstarve.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FILL, _BAD_FILL = "#5b7ea4", "#cf6a55"


def plot(report: Report) -> Figure:
    """The ladder as horizontal bars of steps/s with 95 % intervals, the guilty drops in red.

    The figure belongs to no pyplot state: save it with `savefig` or show it as the value of a notebook cell.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("plot() needs matplotlib, which is not installed: pip install 'unstarve[plot]'.") from None
    report = view.cleaned(report)
    rungs = view.ladder(report.rungs)
    drops = view.guilty_drops(report)
    rates = [rung.steps_per_s for rung in rungs]
    figure = Figure(figsize=(8, 1.6 + 0.34 * len(rungs)), layout="constrained")
    axes = figure.add_subplot()
    axes.barh(
        range(len(rungs)),
        [rate.value for rate in rates],
        height=0.62,
        color=[_BAD_FILL if rung.id in drops else _FILL for rung in rungs],
        xerr=[[rate.value - rate.low for rate in rates], [rate.high - rate.value for rate in rates]],
        error_kw={"capsize": 3, "elinewidth": 1.2},
    )
    # Names are the user's: a dollar sign in one is no formula.
    axes.set_yticks(range(len(rungs)), [view.clip(rung.label, 36) for rung in rungs], parse_math=False)
    for position, rate in enumerate(rates):
        axes.annotate(view.figure(rate.value), (rate.high, position), (5, 0), textcoords="offset points", va="center")
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("steps/s, with 95 % intervals")
    axes.set_title(view.badge(report.verdict), loc="left", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
