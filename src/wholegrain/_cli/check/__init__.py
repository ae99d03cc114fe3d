"""`wholegrain check`: checks that a pipeline is deterministic, picklable and resumes."""

import argparse
import dataclasses
import json
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

import wholegrain as wg
from wholegrain._cli.check import captures, digests, elsewhere
from wholegrain._cli.console import Console, size_text
from wholegrain._cli.errors import one_line, with_place
from wholegrain._cli.pipelines import describe, load_pipeline
from wholegrain._core.difference import difference
from wholegrain._graph import epochs
from wholegrain._graph.dataset import upstream
from wholegrain.testing import check_resume

_GOOD, _WARNING, _FAILED = "ok", "warning", "failed"
_STYLES = {_GOOD: "green", _WARNING: "yellow", _FAILED: "bold red"}
_MARKS = {_GOOD: "✓", _WARNING: "!", _FAILED: "✗"}
_END = object()


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    status: str
    text: str


def run(arguments: argparse.Namespace) -> int:
    """Check a pipeline; return 1 if a check failed."""
    pipeline = load_pipeline(arguments.pipeline)
    console = Console()
    if not arguments.json:
        console.line(arguments.pipeline, "bold")
        console.line(f"  {describe(pipeline)}")
    findings = []
    found = _findings(pipeline, arguments)
    if arguments.digest:
        found = iter([_compare_digests(pipeline, Path(arguments.digest), arguments.elements)])
    for finding in found:
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
        console.line("  No check failed, but there are warnings.", "yellow")
    else:
        console.line("  All checks passed.", "green")
    return 1 if failed else 0


def _compare_digests(pipeline: Any, path: Path, count: int) -> Finding:
    name = "digest"
    if not path.exists():
        steps, running = digests.record(pipeline, path, count)
        text = f"recorded {steps} steps in {path}, digest {running[:16]}"
        return Finding(name, _GOOD, f"{text}\nThe same command compares another run with it.")
    problem = digests.compare(pipeline, path, count)
    if problem is None:
        return Finding(name, _GOOD, f"the same elements as in {path}")
    return Finding(name, _FAILED, f"The first difference from {path} is at {problem}")


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
        yield Finding("reading", _WARNING, "The pipeline has no elements.")
        return
    yield _check_again(pipeline, elements)
    yield _check_fresh_process(arguments.pipeline, elements)
    if pickling.status == _FAILED:
        return  # The other checks need it.
    yield _check_resume(pipeline, arguments)
    yield _check_frameworks(dataset)


def _check_pickling(dataset: Any) -> Finding:
    for stage in reversed(upstream(dataset)):
        try:
            packed = cloudpickle.dumps(stage)
        except Exception as error:
            return Finding(
                "pickling",
                _FAILED,
                f"{stage} cannot be pickled: {one_line(error)}\nWorkers get a copy of the whole"
                " pipeline. Do not store open files, locks or connections in it; open them when"
                " they are first used.",
            )
    return Finding("pickling", _GOOD, f"{size_text(len(packed))} for each worker")


def _check_captures(dataset: Any) -> Finding:
    found = captures.heavy_captures(dataset)
    if not found:
        return Finding("heavy captures", _GOOD, "none")
    lines = [
        f"{capture.stage} captures {capture.name}: a {capture.kind} of {size_text(capture.nbytes)}"
        for capture in found
    ]
    lines.append(
        "It is sent to every worker. Load it there in a function of a module, or pass it as"
    )
    lines.append("a source.")
    return Finding("heavy captures", _WARNING, "\n".join(lines))


def _first_elements(pipeline: Any, count: int) -> list[Any]:
    with epochs.meant():
        it = iter(pipeline)
        try:
            # A copy, because the next element may reuse the memory.
            return [cloudpickle.loads(cloudpickle.dumps(element)) for element in islice(it, count)]
        finally:
            it.close()


def _check_again(pipeline: Any, elements: list[Any]) -> Finding:
    name = "determinism"
    found = _first_elements(pipeline, len(elements))
    problem = _first_difference(elements, found)
    if problem:
        return Finding(name, _FAILED, f"A second run returned other elements: {problem}\n{_HINT}")
    if isinstance(pipeline, wg.MapDataset):
        for index in dict.fromkeys((0, len(elements) // 2, len(elements) - 1)):
            problem = difference(pipeline[index], pipeline[index])
            if problem:
                text = f"Reading ds[{index}] twice returned different elements: {problem}.\n{_HINT}"
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
        hint = (
            "The order may depend on string hashes, on the time, or on the history of the process."
        )
        return Finding(name, _FAILED, f"Another process read other elements: {problem}\n{hint}")
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
    while getattr(dataset, "only_prefetches", False):  # workers run what is upstream of it
        (dataset,) = dataset.parents
    try:
        found = elsewhere.frameworks_elsewhere(dataset)
    except elsewhere.FailedElsewhereError as error:
        return Finding(name, _FAILED, f"It could not be read in another process: {error}")
    if not found:
        return Finding(name, _GOOD, "workers import none of jax, tensorflow and torch")
    lines = [f"{module} is imported in every worker, by {where}" for module, where in found.items()]
    lines.append(
        "That costs seconds and memory in each worker. Import it only in the training program, and"
    )
    lines.append("move what workers run to modules that do not import it.")
    return Finding(name, _WARNING, "\n".join(lines))
