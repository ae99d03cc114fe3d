"""The chart of benchmarks on the front page, drawn from the table in the README.

    python scripts/docs_chart.py    # after the table has changed

A test compares the drawing with the table.
"""

import html
import math
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
CHART = ROOT / "docs" / "figures" / "benchmarks.svg"

TIMES = "\N{MULTIPLICATION SIGN}"

# How a row of the table begins, which of its ratios is drawn, and what it is called.
ROWS = (
    ("the same with the default 16 threads", 0, "shuffle, maps, filter, batch"),
    ("60,000 images of 28", 1, "images in memory, shuffled"),
    ("shuffled ArrayRecord", 0, "shuffled ArrayRecord files"),
    ("mixing eight datasets", 0, "mixing eight datasets"),
    ("packing: first-fit", 0, "packing, first-fit"),
    ("batches of 38 MB", 0, "batches of 38 MB from a worker"),
    ("Parquet: rows", 1, "Parquet: map, batch"),
    ("JPEG decoding", 0, "JPEG decoding, 2 workers"),
    ("a source that sleeps 5 ms", 0, "a source that only waits"),
)

# The same colours as the other figures; inside the site its own style sheet sets them.
STYLE = """
    .wg-figure { --ink: #2c2a26; --faint: #8d877b; --line: #cdbf9f; --paper: #ffffff;
      --one: #b07b12; }
    @media (prefers-color-scheme: dark) {
      .wg-figure { --ink: #ece6d8; --faint: #a39b8a; --line: #5d5440; --paper: #201d17;
        --one: #e3b04b; }
    }
    .wg-figure text {
      font: 13px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--ink);
    }
    .wg-figure .end { text-anchor: end; }
    .wg-figure .mid { text-anchor: middle; }
    .wg-figure .bold {
      font-weight: 600; paint-order: stroke; stroke: var(--paper); stroke-width: 4px;
    }
    .wg-figure text.faint { fill: var(--faint); font-size: 11px; }
    .wg-figure .grid { stroke: var(--line); stroke-width: 1; }
    .wg-figure .bar { fill: var(--one); rx: 2px; }
"""

WIDTH, LEFT, RIGHT = 520, 226, 480  # of the drawing; of 1x and 1000x
TOP, STEP = 26, 22


class Bar(NamedTuple):
    """One line of the chart."""

    label: str
    ratio: float
    text: str


def bars(readme: str) -> list[Bar]:
    """Return the lines of the chart, from the text of the README."""
    table = readme.partition("<!-- benchmark table -->")[2].partition("<!-- end -->")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    found = []
    for start, which, label in ROWS:
        matches = [row[1] for row in rows if row[0].strip().startswith(start)]
        if len(matches) != 1:
            raise ValueError(f"The README's table has {len(matches)} rows that begin {start!r}.")
        ratios = re.findall(rf"[\d.]+(?={TIMES})", matches[0])
        found.append(Bar(label, float(ratios[which]), f"{ratios[which]}{TIMES}"))
    return sorted(found, key=lambda bar: -bar.ratio)


def chart(readme: str) -> str:
    """Return the drawing, from the text of the README."""
    drawn = bars(readme)
    bottom = TOP + STEP * len(drawn)
    said = "; ".join(f"{bar.label} {bar.text}" for bar in drawn)
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" class="wg-figure" role="img"',
        f'  viewBox="0 0 {WIDTH} {bottom + 10}" aria-label="How fast, against Grain">',
        "  <title>How many times as fast as Grain 0.2.18</title>",
        f"  <desc>{html.escape(said)}</desc>",
        f"  <style>{STYLE}  </style>",
    ]
    for ratio in (1, 10, 100, 1000):
        x, text = _place(ratio), "as fast as Grain" if ratio == 1 else f"{ratio}{TIMES}"
        lines += [
            f'  <line class="grid" x1="{x}" y1="{TOP - 6}" x2="{x}" y2="{bottom}"/>',
            f'  <text class="mid faint" x="{x}" y="{TOP - 12}">{text}</text>',
        ]
    for number, bar in enumerate(drawn):
        y = TOP + STEP * number
        end = max(_place(bar.ratio), LEFT + 2)
        lines += [
            f'  <text class="end" x="{LEFT - 8}" y="{y + 15}">{html.escape(bar.label)}</text>',
            f'  <rect class="bar" x="{LEFT}" y="{y + 3}" width="{end - LEFT:g}" height="16"/>',
            f'  <text class="bold" x="{end + 6:g}" y="{y + 15}">{bar.text}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _place(ratio: float) -> float:
    return round(LEFT + (RIGHT - LEFT) * math.log10(max(ratio, 1)) / 3, 1)


if __name__ == "__main__":
    CHART.write_text(chart((ROOT / "README.md").read_text()))
    print(CHART)
