"""What the commands are called, what they take, and what `--help` says about them."""

import argparse
import sys
from typing import NoReturn

import wholegrain
from wholegrain._cli.console import printable

_PIPELINE = """\
A pipeline is named by where it is found:
  my_module:ds          the variable `ds` of a module, looked for in this directory first
  path/to/file.py:ds    the same of a file
  my_module:make_ds     a function without arguments that returns one
It is a MapDataset, an IterDataset or a DataLoader."""

_FORMATS = """\
Formats are told by what is in the files: array_record, tfrecord, parquet, arrow (Hugging Face
datasets on disk too), bagz, npy (and npz), and folder, of which each file is a record.
A path may be a file, a folder of shards, a glob pattern in quotes, or a sharded name such as
train@16.array_record."""


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        text = f"{self.prog}: {message}. `{self.prog} --help` says more."
        print(printable(text), file=sys.stderr)
        raise SystemExit(2)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the `wholegrain` command."""
    top = _Parser(
        prog="wholegrain",
        description="Feeds data to machine-learning training. The command shows, converts, measures"
        " and checks.",
        epilog="`wholegrain COMMAND --help` tells more about each.",
    )
    top.add_argument("--version", action="version", version=f"wholegrain {wholegrain.__version__}")
    top.add_argument("--traceback", action="store_true", help="show where an error comes from")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _demo(_command(commands, "demo", "a training run that is killed, and goes on exactly"))
    _inspect(_command(commands, "inspect", "what is in a file or a folder", _FORMATS))
    _convert(_command(commands, "convert", "from one format into another", _FORMATS))
    _bench(_command(commands, "bench", "how fast a pipeline is", _PIPELINE))
    _check(_command(commands, "check", "whether a pipeline can be relied on", _PIPELINE))
    return top


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
        "Write a small image dataset to ArrayRecord; train on it, shuffled, augmented and batched"
        " by two workers; kill the training half-way; go on from its checkpoint; and show by"
        " digest that not one pixel was different from a run that nobody disturbed."
    )
    command.formatter_class = argparse.HelpFormatter
    command.add_argument(
        "--steps",
        type=_whole_number(20),
        default=500,
        metavar="N",
        help="how many batches of 64 images a whole run has (500)",
    )
    command.add_argument(
        "--images",
        type=_whole_number(64),
        default=10_000,
        metavar="N",
        help="how many images are written (10000)",
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
        help="how many of the first records to show (3)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")


def _convert(command: _Parser) -> None:
    command.description = (
        "From one format into another. A conversion that was interrupted, by whatever, goes on\n"
        "when it is started again, and gives the same bytes as one that was not."
    )
    command.add_argument("source", metavar="SRC", help="what to read: see below")
    command.add_argument(
        "destination", metavar="DST", help="what to write: a file, or a folder for `--to folder`"
    )
    command.add_argument(
        "--to",
        metavar="FORMAT",
        choices=["array_record", "tfrecord", "parquet", "arrow", "folder"],
        help="array_record, tfrecord, parquet, arrow or folder; by default what"
        " the ending of DST says",
    )
    command.add_argument(
        "--shards",
        type=_whole_number(1),
        metavar="N",
        help="how many files to write, DST-00000-of-0000N and so on; by default"
        " one for each 256 MB of SRC",
    )
    command.add_argument(
        "--workers",
        type=_whole_number(0),
        metavar="N",
        help="how many processes write shards; by default one for each processor. 0 is this one",
    )
    command.add_argument(
        "--rows",
        choices=["auto", "bytes", "example", "json"],
        default="auto",
        help="how rows of columns become records of bytes, and back; see the"
        " documentation. By default tf.train.Example, and JSON in a folder; the"
        " bytes themselves where there is nothing but a column `record`",
    )
    command.add_argument(
        "--verify", action="store_true", help="read everything again, and compare it with SRC"
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="overwrite DST, and forget an earlier conversion that is unfinished",
    )


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
        help="how many elements to read (64)",
    )
    command.add_argument(
        "--restores",
        type=_whole_number(1),
        default=3,
        metavar="N",
        help="at how many steps to restore (3)",
    )
    command.add_argument(
        "--seed", type=_whole_number(0), default=0, metavar="N", help="which steps those are (0)"
    )
    command.add_argument("--strict", action="store_true", help="let warnings count as failures")
    command.add_argument("--json", action="store_true", help="print JSON")
