"""A drawing of a pipeline in characters, from its source to its output."""

from __future__ import annotations

from wholegrain._observe.summary import Run, Tree, tree_of


def draw(run: Run) -> str:
    """Return a drawing of the stages of a run, with the shapes and dtypes of their elements."""
    chain = [tree_of(run)]
    joins = []
    while chain[-1].inputs:
        if len(chain[-1].inputs) > 1:
            joins.append(chain[-1].times.name)
        chain.append(chain[-1].inputs[0])
    lines = ["Dataset graph:", ""]
    lines += [f"WARNING: {name} has several inputs: only the first one is drawn." for name in joins]
    source = chain.pop()
    lines += [source.times.name, *_arrow(source, "")]
    for stage in reversed(chain):
        lines += _arrow(stage, stage.times.name)
    return "\n".join(lines)


def _arrow(stage: Tree, label: str) -> list[str]:
    return ["  ││", f"  ││  {label}", "  ││", "  ╲╱", stage.times.spec or "?", ""]  # noqa: RUF001
