"""The commands, their arguments, and the text of `--help`."""

import argparse
import sys
from typing import NoReturn

import wholegrain
from wholegrain._cli.console import printable

_PIPELINE = """\
A pipeline is named by where it is defined:
  my_module:ds          the variable `ds` of a module; this directory is searched first
  path/to/file.py:ds    the variable `ds` of a file
  my_module:make_ds     a function without arguments that returns a pipeline
It is a MapDataset, an IterDataset or a DataLoader."""

_FORMATS = """\
The format is detected from the content of the files: array_record, tfrecord, parquet, arrow
(also Hugging Face datasets on disk), bagz, npy (and npz), jsonl, text, csv, tar, mds, and folder,
where each file is a record.
A path may be a file, a folder of shards, a glob pattern in quotes, or a sharded name such as
train@16.array_record."""


_INDEXED = """\
Sources of jsonl, text, csv and tar files need an index of their records. The first process that
opens a file builds it, and saves it next to the file, or in $WHOLEGRAIN_CACHE, by default
~/.cache/wholegrain, if that folder is read-only. Valid indexes are not built again."""


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        text = f"{self.prog}: {message}. See `{self.prog} --help`."
        print(printable(text), file=sys.stderr)
        raise SystemExit(2)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the `wholegrain` command."""
    top = _Parser(
        prog="wholegrain",
        description="Data loading for machine-learning training. Inspects and converts files, and"
        " benchmarks and checks pipelines.",
        epilog="`wholegrain COMMAND --help` describes each command.",
    )
    top.add_argument("--version", action="version", version=f"wholegrain {wholegrain.__version__}")
    top.add_argument("--traceback", action="store_true", help="show the traceback of an error")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _demo(_command(commands, "demo", "show a training run that is killed and resumes exactly"))
    _inspect(_command(commands, "inspect", "show the content of a file or a folder", _FORMATS))
    _convert(_command(commands, "convert", "convert from one format to another", _FORMATS))
    _cache(_command(commands, "cache", "list, verify, clear or fill a cache on disk", _PIPELINE))
    _index(_command(commands, "index", "build the indexes of files ahead of time", _INDEXED))
    _bench(_command(commands, "bench", "measure how fast a pipeline is", _PIPELINE))
    _check(
        _command(commands, "check", "check that a pipeline is deterministic and resumes", _PIPELINE)
    )
    _top(_command(commands, "top", "show what a running program is doing, live"))
    _dashboard(_command(commands, "dashboard", "show running programs as a web page"))
    _trace(_command(commands, "trace", "show which records a step was made from", _PIPELINE))
    return top


def command_names() -> list[str]:
    """Return the names of all commands."""
    kind = argparse._SubParsersAction  # noqa: SLF001  (argparse has no public way to ask)
    (commands,) = [one for one in parser()._actions if isinstance(one, kind)]  # noqa: SLF001
    return list(commands.choices)


def _command(
    commands: "argparse._SubParsersAction[_Parser]", name: str, text: str, more: str = ""
) -> _Parser:
    return commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _whole_number(least: int) -> "type[int]":
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"it has to be at least {least}, but got {value}")
        return value

    return parse  # type: ignore[return-value]


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"it has to be more than 0 seconds, but got {text}")
    return value


def _demo(command: _Parser) -> None:
    command.description = (
        "Write a small image dataset to ArrayRecord, and train on it with two workers. Kill the"
        " training halfway, resume from its checkpoint, and compare digests of all pixels with"
        " those of an uninterrupted run."
    )
    command.formatter_class = argparse.HelpFormatter
    command.add_argument(
        "--steps",
        type=_whole_number(20),
        default=500,
        metavar="N",
        help="number of batches of 64 images in a run (500)",
    )
    command.add_argument(
        "--images",
        type=_whole_number(64),
        default=10_000,
        metavar="N",
        help="number of images to write (10000)",
    )
    command.add_argument(
        "--report",
        metavar="FILE",
        help="where to save the report of the pipeline as a page (.html)",
    )


def _inspect(command: _Parser) -> None:
    command.add_argument("path", metavar="PATH", help="a file, a folder, a pattern, a sharded name")
    command.add_argument(
        "--records",
        type=_whole_number(0),
        default=3,
        metavar="N",
        help="number of records to show (3)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")


def _convert(command: _Parser) -> None:
    command.description = (
        "Convert from one format to another. An interrupted conversion continues when the same\n"
        "command runs again, and produces the same bytes as an uninterrupted one."
    )
    command.add_argument("source", metavar="SRC", help="what to read: see below")
    command.add_argument(
        "destination", metavar="DST", help="what to write: a file, or a folder for `--to folder`"
    )
    command.add_argument(
        "--to",
        metavar="FORMAT",
        choices=["array_record", "tfrecord", "parquet", "arrow", "folder"],
        help="array_record, tfrecord, parquet, arrow or folder; by default the suffix of DST",
    )
    command.add_argument(
        "--shards",
        type=_whole_number(1),
        metavar="N",
        help="number of files to write, DST-00000-of-0000N and so on; by default"
        " one for each 256 MB of SRC",
    )
    command.add_argument(
        "--workers",
        type=_whole_number(0),
        metavar="N",
        help="number of processes; by default one for each processor. 0 uses only this process",
    )
    command.add_argument(
        "--ray",
        action="store_true",
        help="run the processes on a Ray cluster, as many as it grants; its nodes have to see SRC"
        " and DST under the same names",
    )
    command.add_argument(
        "--rows",
        choices=["auto", "bytes", "example", "json"],
        default="auto",
        help="how rows of columns are converted to bytes, and back; see the"
        " documentation. By default tf.train.Example, and JSON in a folder; the"
        " bytes themselves if `record` is the only column",
    )
    command.add_argument(
        "--verify", action="store_true", help="read the output and compare it with SRC"
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="overwrite DST, and discard an earlier unfinished conversion",
    )


def _cache(command: _Parser) -> None:
    command.add_argument(
        "action",
        choices=["ls", "verify", "clear", "build"],
        help="ls: what it holds. verify: check all of it, and delete what is damaged. clear: delete"
        " all of it. build: compute the elements that `ds.cache(path)` in a pipeline keeps",
    )
    command.add_argument(
        "place",
        metavar="DIR|MODULE:NAME",
        help="the folder of a cache; for `build` a pipeline: see below",
    )
    command.add_argument(
        "--workers",
        type=_whole_number(0),
        metavar="N",
        help="number of processes for `build`; by default one for each processor. 0 uses only this"
        " process",
    )


def _index(command: _Parser) -> None:
    command.add_argument(
        "paths", metavar="PATH", nargs="+", help="a file, a folder, a pattern, a sharded name"
    )
    command.add_argument("--json", action="store_true", help="print JSON")


def _bench(command: _Parser) -> None:
    command.add_argument("pipeline", metavar="MODULE:NAME", help="which pipeline: see below")
    command.add_argument(
        "--seconds", type=_seconds, default=10.0, metavar="S", help="how long to measure (10)"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument(
        "--report",
        metavar="FILE",
        help="where to save the report of the pipeline as a page (.html)",
    )


def _check(command: _Parser) -> None:
    command.add_argument("pipeline", metavar="MODULE:NAME", help="which pipeline: see below")
    command.add_argument(
        "--elements",
        type=_whole_number(1),
        default=64,
        metavar="N",
        help="number of elements to read (64)",
    )
    command.add_argument(
        "--restores",
        type=_whole_number(1),
        default=3,
        metavar="N",
        help="number of steps at which to restore (3)",
    )
    command.add_argument(
        "--seed", type=_whole_number(0), default=0, metavar="N", help="selects those steps (0)"
    )
    command.add_argument(
        "--digest",
        metavar="FILE",
        help="only compare the elements with those of another run, by their digests in FILE; if it"
        " does not exist, write it",
    )
    command.add_argument("--strict", action="store_true", help="treat warnings as failures")
    command.add_argument("--json", action="store_true", help="print JSON")


def _top(command: _Parser) -> None:
    command.description = (
        "Show what a running program is doing: the rate of each stage, how full the buffers are,\n"
        "what the training loop waits for, and the worker processes. The program needs no change.\n"
        "It becomes visible a second after its first element, to its own user only."
    )
    command.add_argument(
        "pid",
        metavar="PID",
        nargs="?",
        type=_whole_number(1),
        help="the process; by default the only one that runs a pipeline",
    )
    command.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="seconds between updates (1)"
    )
    command.add_argument("--once", action="store_true", help="print one view and end")
    command.add_argument("--json", action="store_true", help="print one view as JSON and end")


def _dashboard(command: _Parser) -> None:
    command.description = (
        "Show running programs as a web page: the pipeline as a graph with rates and buffers, the\n"
        "waiting of the training loop in the last hour, the limiting stage, and what would help.\n"
        "The address contains a token, without which nothing is shown."
    )
    command.add_argument(
        "pids",
        metavar="PID",
        nargs="*",
        type=_whole_number(1),
        help="the processes; by default the only one that runs a pipeline",
    )
    command.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="URL",
        help="the address of a dashboard on another host, to show its program too",
    )
    command.add_argument(
        "--port", type=_whole_number(0), default=0, metavar="N", help="the port (any free one)"
    )
    command.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (127.0.0.1)"
    )
    command.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="seconds between updates (1)"
    )
    command.add_argument("--record", metavar="FILE", help="write what is shown to a new file")
    command.add_argument("--open", metavar="FILE", help="show a file that was recorded")


def _trace(command: _Parser) -> None:
    command.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="a folder that the iterator was saved in, a folder of checkpoints with their steps as"
        " names, or a file with a state in JSON",
    )
    command.add_argument(
        "--pipeline", required=True, metavar="MODULE:NAME", help="which pipeline: see below"
    )
    command.add_argument(
        "--step", type=_whole_number(0), required=True, metavar="N", help="which step, from 0"
    )
    command.add_argument(
        "--at",
        type=_whole_number(0),
        metavar="N",
        help="the step of the checkpoint, if its state does not tell; without it, the pipeline is"
        " then read from its start",
    )
    command.add_argument(
        "--process",
        type=_whole_number(0),
        default=0,
        metavar="N",
        help="which process of several saved the state (0)",
    )
    command.add_argument(
        "--write", metavar="FILE", help="write the element: its arrays to an .npz, else a pickle"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
