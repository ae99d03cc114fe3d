"""Reports as self-contained HTML pages: the graph of the pipeline, and where its time went."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from wholegrain._observe.report_text import headline, size

if TYPE_CHECKING:
    from wholegrain._observe.report import Report, StageReport

_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y = 310, 66, 26, 30

_STYLE = """
.wg-report { --ink: #1d2733; --soft: #5b6b7c; --paper: #ffffff; --line: #d5dde5; --box: #f3f6f9;
  --bar: #3b82c4; --hot: #d9542b; --hot-box: #fdeee8; --wait: #e2a33b;
  color: var(--ink); background: var(--paper); font: 14px/1.5 system-ui, sans-serif;
  padding: 1.2rem; max-width: 1240px; }
@media (prefers-color-scheme: dark) { .wg-report { --ink: #e4eaf0; --soft: #9aa9b8;
  --paper: #12181f; --line: #33404d; --box: #1c252f; --bar: #5aa2e0; --hot: #f0764e;
  --hot-box: #3a211a; --wait: #d9a441; } }
.wg-report h1 { font-size: 1.25rem; margin: 0 0 .6rem; }
.wg-report .verdict { font-weight: 600; margin: .8rem 0; }
.wg-report ul { margin: -.6rem 0 1rem; padding-left: 1.2rem; }
.wg-report code { overflow-wrap: anywhere; }
.wg-report .split { display: flex; height: 1.4rem; border-radius: 4px; overflow: hidden;
  border: 1px solid var(--line); margin: .5rem 0 .2rem; }
.wg-report .split .waited { background: var(--wait); }
.wg-report .split .looped { background: var(--bar); }
.wg-report .key { color: var(--soft); font-size: .85rem; }
.wg-report .columns { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
.wg-report .wide { overflow-x: auto; max-width: 100%; }
.wg-report .graph { position: relative; }
.wg-report .graph svg { position: absolute; left: 0; top: 0; }
.wg-report .stage { position: absolute; box-sizing: border-box; overflow: hidden;
  padding: 3px 9px; background: var(--box); border: 1px solid var(--line); border-radius: 6px;
  font-size: 13px; line-height: 18px; }
.wg-report .stage.limits { background: var(--hot-box); border: 2px solid var(--hot);
  padding: 2px 8px; }
.wg-report .stage div { display: flex; justify-content: space-between; gap: 10px; }
.wg-report .stage div span { white-space: nowrap; flex: none; }
.wg-report .stage div span:first-child { flex: 0 1 auto; overflow: hidden;
  text-overflow: ellipsis; }
.wg-report .stage .soft { color: var(--soft); font-size: 11px; line-height: 16px; }
.wg-report .stage i { position: absolute; left: 0; bottom: 0; height: 5px; background: var(--bar); }
.wg-report .stage.limits i { background: var(--hot); }
.wg-report svg .edge { stroke: var(--soft); fill: none; }
.wg-report svg .head { fill: var(--soft); }
.wg-report table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.wg-report th, .wg-report td { text-align: right; padding: .25rem .6rem; white-space: nowrap;
  border-bottom: 1px solid var(--line); color: var(--ink); background: none; }
.wg-report th { color: var(--soft); font-weight: 500; }
.wg-report th:first-child, .wg-report td:first-child, .wg-report th:last-child,
.wg-report td:last-child { text-align: left; }
.wg-report td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }
.wg-report tr.limits td { color: var(--hot); font-weight: 600; }
.wg-report .track { display: inline-block; width: 110px; height: .7rem; background: var(--box);
  border-radius: 3px; overflow: hidden; vertical-align: middle; }
.wg-report .track span { display: block; height: 100%; background: var(--bar); }
.wg-report tr.limits .track span { background: var(--hot); }
"""


def page(report: Report) -> str:
    """Return a whole page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,"><title>Pipeline report</title>'
        "<style>body { margin: 0; background: #ffffff; } .wg-report { margin: 0 auto; }"
        " @media (prefers-color-scheme: dark) { body { background: #12181f; } }</style>"
        f"</head><body>{fragment(report)}</body></html>\n"
    )


def fragment(report: Report) -> str:
    """Return the part of a page that a notebook shows."""
    advice = "".join(f"<li>{_with_code(line)}</li>" for line in report.advice)
    return (
        f'<style>{_STYLE}</style><div class="wg-report"><h1>Pipeline report</h1>'
        f"<div>{html.escape(headline(report))}</div>{_split(report)}"
        f'<div class="verdict">{html.escape(report.verdict)}</div>'
        f"{f'<ul>{advice}</ul>' if advice else ''}"
        f'<div class="columns"><div class="wide">{_graph(report)}</div>'
        f'<div class="wide">{_table(report)}</div></div></div>'
    )


def _with_code(line: str) -> str:
    """Return a line of text with the parts between backticks as code."""
    parts = html.escape(line).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))


def _split(report: Report) -> str:
    if not report.wait_seconds + report.loop_seconds:
        return ""
    waited = 100 * report.wait_share
    return (
        f'<div class="split"><div class="waited" style="width:{waited:.2f}%"></div>'
        f'<div class="looped" style="width:{100 - waited:.2f}%"></div></div>'
        f'<div class="key">Left: the training loop waits for data, {waited:.1f}%.'
        f" Right: it does its own work, {100 - waited:.1f}%.</div>"
    )


def _table(report: Report) -> str:
    rows = "".join(_row(report, stage) for stage in report.stages)
    return (
        "<table><thead><tr><th>stage</th><th>time</th><th></th><th>of the waiting</th>"
        "<th>idle</th><th>elements</th><th>bytes</th><th>runs in</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _row(report: Report, stage: StageReport) -> str:
    about = "~" if stage.is_estimated else ""
    cells = [
        f'<span title="{html.escape(stage.node)}">{html.escape(stage.name)}</span>',
        f"{stage.share:.1%}",
        f'<span class="track"><span style="width:{100 * stage.share:.1f}%"></span></span>',
        f"{stage.wait_share:.1%}",
        f"{stage.idle_share:.0%}" if stage.share >= 0.005 else "",
        "" if stage.elements is None else f"{about}{stage.elements:,}",
        "" if stage.nbytes is None else f"~{size(stage.nbytes)}",
        stage.runs_in,
    ]
    kind = ' class="limits"' if stage.id == report.limiting else ""
    return f"<tr{kind}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


# The graph, with sources at the top of the page and the output at the bottom.


def _graph(report: Report) -> str:
    places = _places(report)
    width = max(x for x, _ in places.values()) + _BOX_WIDTH + 4
    height = max(y for _, y in places.values()) + _BOX_HEIGHT + 4
    parts = _edges(report, places)
    start = (
        f'<div class="graph" style="width:{width:.0f}px;height:{height:.0f}px">'
        f'<svg width="{width:.0f}" height="{height:.0f}" role="img"'
        ' aria-label="The stages of the pipeline, sources first">'
        '<defs><marker id="wg-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
    )
    boxes = [_box(report, stage, *places[stage.id]) for stage in report.stages]
    return start + "".join(parts) + "</svg>" + "".join(boxes) + "</div>"


def _edges(report: Report, places: dict[int, tuple[float, float]]) -> list[str]:
    return [
        _edge(places[number], places[stage.id])
        for stage in report.stages
        for number in stage.inputs
    ]


def _places(report: Report) -> dict[int, tuple[float, float]]:
    """Return the coordinates of each stage: one column per source, one row per distance."""
    by_id = {stage.id: stage for stage in report.stages}
    columns: dict[int, float] = {}
    depths: dict[int, int] = {}
    free = [0]

    def place(number: int, depth: int) -> float:
        depths[number] = depth
        inputs = [place(parent, depth + 1) for parent in by_id[number].inputs]
        if not inputs:
            inputs = [float(free[0])]
            free[0] += 1
        columns[number] = inputs[0]  # Keeps the output at the left edge, where it is visible.
        return columns[number]

    place(0, 0)
    deepest = max(depths.values())
    return {
        number: (
            columns[number] * (_BOX_WIDTH + _GAP_X),
            float((deepest - depths[number]) * (_BOX_HEIGHT + _GAP_Y)),
        )
        for number in depths
    }


def _edge(source: tuple[float, float], target: tuple[float, float]) -> str:
    x0, y0 = source[0] + _BOX_WIDTH / 2, source[1] + _BOX_HEIGHT
    x1, y1 = target[0] + _BOX_WIDTH / 2, target[1]
    middle = (y0 + y1) / 2
    return (
        f'<path class="edge" marker-end="url(#wg-head)"'
        f' d="M{x0:.0f} {y0:.0f} C{x0:.0f} {middle:.0f} {x1:.0f} {middle:.0f} {x1:.0f} {y1:.0f}"/>'
    )


def _box(report: Report, stage: StageReport, x: float, y: float) -> str:
    limits = " limits" if stage.id == report.limiting else ""
    count = "" if stage.length is None else f"{stage.length:,} elements"
    waiting = "" if stage.wait_share < 0.01 else f"{stage.wait_share:.0%} of the waiting"
    return (
        f'<div class="stage{limits}" title="{html.escape(f"{stage.name}: {stage.node}")}"'
        f' style="left:{x:.0f}px;top:{y:.0f}px;width:{_BOX_WIDTH}px;height:{_BOX_HEIGHT}px">'
        f"<div><span>{html.escape(stage.name)}</span><span>{stage.share:.1%}</span></div>"
        f'<div class="soft"><span>{html.escape(stage.runs_in)}</span><span>{waiting}</span></div>'
        f'<div class="soft"><span>{"infinite" if stage.is_infinite else count}</span></div>'
        f'<i style="width:{100 * stage.share:.1f}%"></i></div>'
    )
