"""`wholegrain check`: whether a pipeline can be relied on."""

import argparse
import dataclasses
import json
from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

import wholegrain as wg
from wholegrain._cli.check import captures, elsewhere
from wholegrain._cli.console import Console, size_text
from wholegrain._cli.errors import one_line, with_place
from wholegrain._cli.pipelines import describe, load_pipeline
from wholegrain._core.difference import difference
from wholegrain._graph import epochs
from wholegrain.testing import check_resume

_GOOD, _WARNING, _FAILED = "ok", "warning", "failed"
_STYLES = {_GOOD: "green", _WARNING: "yellow", _FAILED: "bold red"}
_MARKS = {_GOOD: "✓", _WARNING: "!", _FAILED: "✗"}
_END = object()


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: str
    status: str
    text: str


def run(arguments: argparse.Namespace) -> int:
    """Check a pipeline; return 1 if something is wrong with it."""
    pipeline = load_pipeline(arguments.pipeline)
    console = Console()
    if not arguments.json:
        console.line(arguments.pipeline, "bold")
        console.line(f"  {describe(pipeline)}")
    findings = []
    for finding in _findings(pipeline, arguments):
        findings.append(finding)
        if not arguments.json:
            _show(console, finding)
    bad = (_FAILED, _WARNING) if arguments.strict else (_FAILED,)
    failed = sum(finding.status in bad for finding in findings)
    if arguments.json:
        content = {
            "pipeline": arguments.pipeline,
            "passed": not failed,
            "findings": [dataclasses.asdict(finding) for finding in findings],
        }
        print(json.dumps(content, indent=2))
    elif failed:
        console.line(f"  {failed} of {len(findings)} checks failed.", "bold red")
    elif any(finding.status == _WARNING for finding in findings):
        console.line("  Nothing failed, but there are warnings.", "yellow")
    else:
        console.line("  All is well.", "green")
    return 1 if failed else 0


def _show(console: Console, finding: Finding) -> None:
    if console.rich is not None:
        mark = _MARKS[finding.status]
    else:
        mark = f"{finding.status.upper() if finding.status == _FAILED else finding.status:<7}"
    first, *rest = finding.text.splitlines()
    console.line(f"  {mark} {finding.check:<14} {first}", _STYLES[finding.status])
    for line in rest:
        console.line(f"      {line}")


def _findings(pipeline: Any, arguments: argparse.Namespace) -> Iterator[Finding]:
    dataset = vars(pipeline)["_dataset"] if isinstance(pipeline, wg.DataLoader) else pipeline
    pickling = _check_pickling(dataset)
    yield pickling
    yield _check_captures(dataset)
    try:
        elements = _first_elements(pipeline, arguments.elements)
    except Exception as error:
        yield Finding("reading", _FAILED, f"An element could not be read: {with_place(error)}")
        return
    if not elements:
        yield Finding("reading", _WARNING, "It has no elements.")
        return
    yield _check_again(pipeline, elements)
    yield _check_fresh_process(arguments.pipeline, elements)
    if pickling.status == _FAILED:
        return  # The rest needs it.
    yield _check_resume(pipeline, arguments)
    yield _check_frameworks(dataset)


def _check_pickling(dataset: Any) -> Finding:
    for stage in captures.stages_of(dataset):
        try:
            packed = cloudpickle.dumps(stage)
        except Exception as error:
            return Finding(
                "pickling",
                _FAILED,
                f"{stage} cannot be pickled: {one_line(error)}\nWorkers get a copy of the whole"
                " pipeline. Leave open files, locks and connections out of it, and make them when"
                " they are first used.",
            )
    return Finding("pickling", _GOOD, f"{size_text(len(packed))} for each worker")


def _check_captures(dataset: Any) -> Finding:
    found = captures.heavy_captures(dataset)
    if not found:
        return Finding("heavy captures", _GOOD, "none")
    lines = [
        f"{capture.stage} carries {capture.name} along: a {capture.kind} of"
        f" {size_text(capture.nbytes)}"
        for capture in found
    ]
    lines.append("It goes to every worker. Load it there, from a function of a module, or use a")
    lines.append("source for it.")
    return Finding("heavy captures", _WARNING, "\n".join(lines))


def _first_elements(pipeline: Any, count: int) -> list[Any]:
    with epochs.meant():
        it = iter(pipeline)
        try:
            # A copy: the next element may be made in the same memory.
            return [cloudpickle.loads(cloudpickle.dumps(element)) for element in islice(it, count)]
        finally:
            it.close()


def _check_again(pipeline: Any, elements: list[Any]) -> Finding:
    name = "determinism"
    found = _first_elements(pipeline, len(elements))
    problem = _first_difference(elements, found)
    if problem:
        return Finding(name, _FAILED, f"A second run gave something else: {problem}\n{_HINT}")
    if isinstance(pipeline, wg.MapDataset):
        for index in dict.fromkeys((0, len(elements) // 2, len(elements) - 1)):
            problem = difference(pipeline[index], pipeline[index])
            if problem:
                text = f"ds[{index}], read twice, is not the same: {problem}.\n{_HINT}"
                return Finding(name, _FAILED, text)
    return Finding(name, _GOOD, f"{len(elements)} elements are the same when read again")


_HINT = "Random numbers have to come from the generator that `random_map` passes."


def _check_fresh_process(spec: str, elements: list[Any]) -> Finding:
    name = "fresh process"
    try:
        found = elsewhere.elements_elsewhere(spec, len(elements))
    except elsewhere.FailedElsewhereError as error:
        return Finding(name, _FAILED, f"It could not be read in another process: {error}")
    problem = _first_difference(elements, found)
    if problem:
        hint = "Order may depend on hashes of text, on the time, or on what the process did before."
        return Finding(name, _FAILED, f"Another process read something else: {problem}\n{hint}")
    return Finding(name, _GOOD, f"{len(elements)} elements are the same in another process")


def _first_difference(expected: list[Any], found: list[Any]) -> str | None:
    for number, (one, other) in enumerate(zip_longest(expected, found, fillvalue=_END)):
        if one is _END or other is _END:
            return f"{len(found)} elements instead of {len(expected)}."
        problem = difference(one, other)
        if problem:
            return f"element {number}, {problem}."
    return None


def _check_resume(pipeline: Any, arguments: argparse.Namespace) -> Finding:
    name = "resume"
    count = arguments.restores
    try:
        check_resume(
            pipeline, max_elements=arguments.elements, num_restores=count, seed=arguments.seed
        )
    except AssertionError as error:
        return Finding(name, _FAILED, str(error))
    return Finding(name, _GOOD, f"the same after restoring at {count} steps, in other processes")


def _check_frameworks(dataset: Any) -> Finding:
    name = "jax in workers"
    while getattr(dataset, "only_prefetches", False):  # what a worker runs is below
        (dataset,) = dataset.parents
    try:
        found = elsewhere.frameworks_elsewhere(dataset)
    except elsewhere.FailedElsewhereError as error:
        return Finding(name, _FAILED, f"It could not be read in another process: {error}")
    if not found:
        return Finding(name, _GOOD, "none of jax, tensorflow and torch is imported there")
    lines = [f"{module} is imported in every worker, by {where}" for module, where in found.items()]
    lines.append("That takes seconds and memory in each. Import it where the training is, and keep")
    lines.append("what workers run in modules without it.")
    return Finding(name, _WARNING, "\n".join(lines))
