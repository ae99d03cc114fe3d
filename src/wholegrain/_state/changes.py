"""Compares the pipeline that wrote a checkpoint with the one that restores it."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

Described = dict[str, Any]


@dataclasses.dataclass
class Changes:
    """Sentences, one for each change.

    Attributes:
        breaking: Changes that give the saved position another meaning.
        harmless: Changes after which the position means the same, though elements may differ.
    """

    breaking: list[str] = dataclasses.field(default_factory=list)
    harmless: list[str] = dataclasses.field(default_factory=list)


def compare(saved: Described, own: Described) -> Changes:
    """Compare two fingerprints: the checkpoint's, and the current pipeline's."""
    changes = Changes()
    _compare_stages(saved["stages"], own["stages"], "", False, changes)
    return changes


def _compare_stages(
    saved: list[Described], own: list[Described], where: str, reread: bool, changes: Changes
) -> None:
    """Compare the stages of two pipelines. `reread`: a stage downstream reads elements again."""
    # Stages without a position of their own may move between the others.
    for with_position in (True, False):
        old = _Marked.all_of(saved, with_position, where, reread)
        new = _Marked.all_of(own, with_position, where, reread)
        matcher = difflib.SequenceMatcher(
            None, [one.name for one in old], [one.name for one in new], autojunk=False
        )
        for tag, i, j, k, m in matcher.get_opcodes():
            if tag == "equal":
                for before, after in zip(old[i:j], new[k:m], strict=True):
                    _compare_settings(before, after, changes)
                continue
            for gone in old[i:j]:
                gone.change_of_kind(changes).append(f"{gone.label} was removed")
            for added in new[k:m]:
                added.change_of_kind(changes).append(f"{added.label} is new")


@dataclasses.dataclass
class _Marked:
    """A stage, and whether a stage downstream reads its elements again."""

    described: Described
    label: str
    reread: bool

    @classmethod
    def all_of(
        cls, stages: list[Described], with_position: bool, where: str, reread: bool
    ) -> list[_Marked]:
        marked: list[_Marked] = []
        for number, described in reversed(list(enumerate(stages, 1))):
            label = f"{where}stage {number}, {described['stage']},"
            if (described.get("position") is None) is with_position:
                marked.append(cls(described, label, reread))
            reread = reread or described.get("rereads", False)
        return marked[::-1]

    @property
    def name(self) -> str:
        name: str = self.described["stage"]
        return name

    def change_of_kind(self, changes: Changes) -> list[str]:
        """Return the list for a note that this stage was added or removed."""
        position = self.described.get("position")
        if position == "parent" or (position == "regrouped" and not self.reread):
            return changes.harmless
        return changes.breaking

    def change_of_setting(self, changes: Changes) -> list[str]:
        """Return the list for a note that a fixed setting of this stage changed."""
        if self.described.get("position") == "regrouped" and not self.reread:
            return changes.harmless
        return changes.breaking


def _compare_settings(saved: _Marked, own: _Marked, changes: Changes) -> None:
    for kind, where in (("fixed", own.change_of_setting(changes)), ("free", changes.harmless)):
        before, after = saved.described.get(kind, {}), own.described.get(kind, {})
        # A setting that only one of two releases records cannot be compared.
        where += [
            f"{own.label} has {name}={_show(after[name])}, and had {_show(before[name])}"
            for name in before
            if name in after and before[name] != after[name]
        ]
    _compare_inputs(saved, own, changes)


def _compare_inputs(saved: _Marked, own: _Marked, changes: Changes) -> None:
    before, after = saved.described.get("inputs", {}), own.described.get("inputs", {})
    reread = own.reread or own.described.get("rereads", False)
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if isinstance(old, list) and isinstance(new, list):
            _compare_stages(old, new, f"{own.label} input {name}, ", reread, changes)
        elif old is None or new is None:
            # Inputs with names may be added and removed.
            is_number = str(name).isdigit() or name in ("count", "others", "datasets")
            what = "was removed" if new is None else "is new"
            where = changes.breaking if is_number else changes.harmless
            where.append(f"{own.label} input {name} {what}")
        elif old != new:
            changes.breaking.append(
                f"{own.label} has inputs {name}={_show(new)}, and had {_show(old)}"
            )


def _show(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)
