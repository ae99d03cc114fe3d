"""Tables of medians, spreads and ratios, and whether the targets were met."""

from dataclasses import asdict
from statistics import median, quantiles
from typing import Any

from harness.declare import Case, Target
from harness.rounds import Result

REFERENCE = "grain"


def spread(values: list[float]) -> tuple[float, float]:
    """Return the lower and upper quartile."""
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return lower, upper


def ratios(result: Result, who: str, over: str, what: str = "value") -> list[float]:
    """Return, round by round, how many times as fast as `over` the competitor `who` was."""
    pairs = zip(result.values(over, what), result.values(who, what), strict=False)
    return [slow / quick for slow, quick in pairs if quick > 0]


def show(result: Result) -> str:
    """Return the tables of one benchmark."""
    parts = [f"\n{result.question}", "=" * min(100, len(result.question))]
    for case in result.cases:
        parts += ["", *_table(result, case)]
    parts += [f"FAILED: {failure}" for failure in result.failures]
    return "\n".join(parts)


def _table(result: Result, case: Case) -> list[str]:
    rows = [[case.name, f"per {case.unit}", "quartiles", "cpu", "x Grain", "memory"]]
    reference = f"{case.name}/{REFERENCE}"
    names = [one.name for one in case.competitors] + list(case.constants)
    for key in (f"{case.name}/{name}" for name in names):
        values = result.values(key)
        if not values:
            continue
        constant = key not in result.samples
        against = ratios(result, key, reference)
        form = _bytes if case.measures == "bytes" else _time
        rows.append(
            [
                key.split("/", 1)[1],
                form(median(values)),
                "" if constant else " .. ".join(form(value) for value in spread(values)),
                "" if constant else _time(median(result.values(key, "cpu"))),
                _times(median(against)) if against else "",
                "" if constant else _bytes(result.memory[key]),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        row[0].ljust(widths[0])
        + "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
    lines.insert(1, "-" * len(lines[0]))
    if case.note:
        lines.append(f"({case.note})")
    return lines + [judgement["text"] for judgement in judgements(result, case)]


def judgements(result: Result, case: Case) -> list[dict[str, Any]]:
    """Return for each target whether it was met, and by how much."""
    return [_judge(result, case, target) for target in case.targets]


def _judge(result: Result, case: Case, target: Target) -> dict[str, Any]:
    who, cpu = target.who.split("/", 1)[1], ""
    if target.over is not None:
        other_case, over = target.over.split("/", 1)
        over = over if other_case == case.name else f"{over} ({other_case})"
        values = ratios(result, target.who, target.over)
        wanted = f"{who} at least {_figure(target.at_least or 0)}x {over}"
        met = bool(values) and median(values) >= (target.at_least or 0)
        form = _times
        if values and target.over in result.samples:
            by_cpu = median(ratios(result, target.who, target.over, "cpu"))
            cpu = f", {_times(by_cpu)} by cpu"
    else:
        values = result.values(target.who)
        form = _bytes if case.measures == "bytes" else _time
        wanted = f"{who} at most {form(target.at_most or 0)} per {case.unit}"
        met = bool(values) and median(values) <= (target.at_most or 0)
    if not values:
        return {"target": wanted, "met": None, "text": f"  [not run] {wanted}"}
    lower, upper = spread(values)
    limit = target.at_most if target.over is None else target.at_least
    # Where the middle half of the rounds lies on both sides, this run cannot tell.
    sure = limit is None or not lower < limit < upper
    verdict = ("met" if met else "MISSED") + ("" if sure else ", within the spread")
    text = f"  [{verdict}] {wanted}: {form(median(values))} ({form(lower)} .. {form(upper)}{cpu})"
    return {"target": wanted, "met": met, "sure": sure, "found": median(values), "text": text}


def as_json(result: Result) -> dict[str, Any]:
    """Return everything that was measured, for machines."""
    return {
        "name": result.name,
        "question": result.question,
        "samples": result.samples,
        "memory": result.memory,
        "failures": result.failures,
        "targets": [
            {"case": case.name} | {k: v for k, v in judgement.items() if k != "text"}
            for case in result.cases
            for judgement in judgements(result, case)
        ],
        "constants": {case.name: case.constants for case in result.cases if case.constants},
        "declared": [asdict(target) for case in result.cases for target in case.targets],
    }


def _figure(value: float) -> str:
    """Round to three digits without an exponent."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _times(ratio: float) -> str:
    return f"{_figure(ratio)}x"


def _scaled(value: float, units: list[tuple[float, str]]) -> str:
    size, unit = next((one for one in units if abs(value) >= one[0]), units[-1])
    return f"{_figure(value / size)} {unit}"


def _time(seconds: float) -> str:
    return _scaled(seconds, [(1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")])


def _bytes(nbytes: float) -> str:
    return _scaled(nbytes, [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")])
