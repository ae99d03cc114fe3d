"""A drawing of a pipeline in characters, from its source to its output."""

from __future__ import annotations

from typing import Any

from wholegrain._observe.summary import Node, execution_summary


def draw(output: Any) -> str:
    """Return a drawing of the stages of a tracked run, with the specs of their elements."""
    nodes = execution_summary(output).nodes
    chain = [nodes[0]]
    joins = []
    while chain[-1].inputs:
        if len(chain[-1].inputs) > 1:
            joins.append(chain[-1].name)
        chain.append(nodes[chain[-1].inputs[0]])
    lines = ["Dataset graph:", ""]
    lines += [f"WARNING: {name} has several inputs: only the first one is drawn." for name in joins]
    source = chain.pop()
    lines += [source.name, *_arrow(source, "")]
    for node in reversed(chain):
        lines += _arrow(node, node.name)
    return "\n".join(lines)


def _arrow(node: Node, label: str) -> list[str]:
    return ["  ││", f"  ││  {label}", "  ││", "  ╲╱", node.output_spec or "?", ""]  # noqa: RUF001
