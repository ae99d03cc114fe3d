import json
import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.tools import complaint, succeed, tree
from tests.sources import files
from wholegrain import sources
from wholegrain._cli import convert, example, main
from wholegrain._cli.convert import reading
from wholegrain._cli.formats import find, open_source

pa = pytest.importorskip("pyarrow")
pytest.importorskip("array_record")
pytest.importorskip("google_crc32c")
pq = pytest.importorskip("pyarrow.parquet")

_FEW = settings(max_examples=12, suppress_health_check=list(HealthCheck), deadline=None)
_BYTES_FORMATS = ["x.array_record", "x.tfrecord", "x.parquet", "x.arrow", "x"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _convert(source: object, destination: str, *options: str) -> None:
    if "." not in destination:
        options = ("--to", "folder", *options)
        shutil.rmtree(destination, ignore_errors=True)
    succeed("convert", str(source), destination, "--force", "--verify", *options)


@pytest.mark.parametrize("middle", _BYTES_FORMATS)
@given(records=st.lists(st.binary(max_size=40), max_size=12), shards=st.integers(1, 3))
@_FEW
def test_bytes_come_back_from_every_format(middle: str, records: list[bytes], shards: int) -> None:
    if middle == "x" and not records:
        return  # a folder without files is no dataset
    source = files.write_tfrecord(Path("in.tfrecord"), records)
    _convert(source, middle, "--workers", "0")
    _convert(middle, f"back@{shards}.tfrecord", "--workers", "0")
    back = sources.TFRecordDataSource(
        [f"back-{i:05d}-of-{shards:05d}.tfrecord" for i in range(shards)]
        if shards > 1
        else "back.tfrecord"
    )
    assert list(back) == records


_COLUMNS = {
    "number": st.integers(-(2**63), 2**63 - 1),
    "maybe": st.none() | st.integers(-5, 5),
    "text": st.text(st.characters(codec="utf-8"), max_size=8),
    "flag": st.booleans(),
    "real": st.floats(width=64),
    "raw": st.binary(max_size=8),
    "items": st.lists(st.integers(-9, 9), max_size=3),
}
_TYPES = {"number": "int64", "maybe": "int64", "text": "string", "real": "float64"}


def _table(rows: list[dict[str, Any]]) -> Any:
    schema = pa.schema(
        [
            ("number", pa.int64()),
            ("maybe", pa.int8()),
            ("text", pa.string()),
            ("flag", pa.bool_()),
            ("real", pa.float64()),
            ("raw", pa.binary()),
            ("items", pa.list_(pa.int64())),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


@given(rows=st.lists(st.fixed_dictionaries(_COLUMNS), max_size=8), shards=st.integers(1, 3))
@_FEW
def test_columns_keep_their_types_and_values(rows: list[dict[str, Any]], shards: int) -> None:
    table = _table(rows)
    files.write_parquet(Path("in.parquet"), table, row_group_size=3)
    _convert("in.parquet", f"middle@{shards}.arrow", "--workers", "0")
    _convert(f"middle@{shards}.arrow" if shards > 1 else "middle.arrow", "back.parquet")
    back = pq.read_table("back.parquet")
    assert back.schema.equals(table.schema)
    assert _same(back.to_pylist(), table.to_pylist())


@given(rows=st.lists(st.fixed_dictionaries(_COLUMNS), min_size=1, max_size=6))
@_FEW
def test_rows_come_back_from_json(rows: list[dict[str, Any]]) -> None:
    files.write_parquet(Path("in.parquet"), _table(rows))
    _convert("in.parquet", "middle.array_record", "--rows", "json")
    _convert("middle.array_record", "back.parquet", "--rows", "json")
    assert _same(pq.read_table("back.parquet").to_pylist(), rows)


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "number": st.integers(-(2**63), 2**63 - 1),
                "real": st.floats(width=32),
                "raw": st.binary(max_size=8),
                "items": st.lists(st.floats(width=32), min_size=2, max_size=4),
            }
        ),
        min_size=1,
        max_size=6,
    )
)
@_FEW
def test_rows_come_back_from_examples(rows: list[dict[str, Any]]) -> None:
    schema = pa.schema(
        [
            ("number", pa.int64()),
            ("real", pa.float32()),
            ("raw", pa.binary()),
            ("items", pa.list_(pa.float32())),
        ]
    )
    files.write_parquet(Path("in.parquet"), pa.Table.from_pylist(rows, schema=schema))
    _convert("in.parquet", "middle.tfrecord")
    _convert("middle.tfrecord", "back.parquet", "--rows", "example")
    back = pq.read_table("back.parquet")
    assert back.schema.equals(schema)
    assert _same(back.to_pylist(), rows)


def test_missing_values_are_features_that_are_not_there() -> None:
    files.write_parquet(Path("in.parquet"), files.table({"a": [1, None], "b": ["x", "y"]}))
    _convert("in.parquet", "out.tfrecord")
    first, second = sources.TFRecordDataSource("out.tfrecord")
    assert example.decode(first) == {"a": (example.INT64, [1]), "b": (example.BYTES, [b"x"])}
    assert example.decode(second) == {"b": (example.BYTES, [b"y"])}


def test_what_an_example_cannot_hold_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    files.write_parquet(Path("in.parquet"), files.table({"a": [1.5], "b": [[[1]]]}))
    line = complaint(capsys, "convert", "in.parquet", "out.tfrecord")
    assert "'a'" in line
    assert "--rows json" in line
    assert not Path("out.tfrecord").exists()


def test_a_folder_keeps_its_names_in_columns() -> None:
    for name in ("b/2.txt", "a.txt", "b/1.txt"):
        path = Path("in", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"this is {name}")
    _convert("in", "middle.parquet")
    assert pq.read_table("middle.parquet").column_names == ["name", "record"]
    _convert("middle.parquet", "out")
    assert tree(Path("out")) == tree(Path("in"))


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", ".", "a//b", ".x"])
def test_names_that_lead_elsewhere_are_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = files.table({"name": ["fine", name], "record": [b"1", b"2"]})
    files.write_parquet(Path("in.parquet"), table)
    complaint(capsys, "convert", "in.parquet", "out", "--to", "folder")
    assert os.listdir() == ["in.parquet"]


def test_two_files_of_one_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    files.write_parquet(
        Path("in.parquet"), files.table({"name": ["a", "a"], "record": [b"1", b"2"]})
    )
    assert "'a'" in complaint(capsys, "convert", "in.parquet", "out", "--to", "folder")


def test_arrays_become_columns() -> None:
    np.savez("in.npz", image=np.arange(24, dtype=np.uint8).reshape(4, 3, 2), label=np.arange(4))
    _convert("in.npz", "out.parquet")
    table = pq.read_table("out.parquet")
    assert table.column("label").to_pylist() == [0, 1, 2, 3]
    assert table.column("image").to_pylist()[1] == [[6, 7], [8, 9], [10, 11]]
    assert table.schema.field("image").type.value_type.value_type == pa.uint8()


def test_the_bytes_do_not_depend_on_the_workers() -> None:
    files.write_array_record(Path("in.array_record"), files.records(90))
    for workers in ("0", "1", "2"):
        Path(workers).mkdir()
        destination = f"{workers}/out@5.parquet"
        succeed("convert", "in.array_record", destination, "--workers", workers)
    assert len(tree(Path("0"))) == 5
    assert tree(Path("0")) == tree(Path("1")) == tree(Path("2"))


def test_what_is_there_stays_unless_forced(capsys: pytest.CaptureFixture[str]) -> None:
    files.write_tfrecord(Path("in.tfrecord"), files.records(5))
    Path("out.parquet").write_text("precious")
    assert "--force" in complaint(capsys, "convert", "in.tfrecord", "out.parquet")
    assert Path("out.parquet").read_text() == "precious"
    succeed("convert", "in.tfrecord", "out.parquet", "--force")
    assert len(open_source(find("out.parquet"))) == 5


def test_the_source_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    files.write_tfrecord(Path("in.tfrecord"), files.records(5))
    before = Path("in.tfrecord").read_bytes()
    complaint(capsys, "convert", "in.tfrecord", "in.tfrecord", "--force")
    assert Path("in.tfrecord").read_bytes() == before


def test_a_damaged_record_stops_the_conversion_with_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = files.write_array_record(Path("in.array_record"), [os.urandom(5000)] * 50)
    content = bytearray(path.read_bytes())
    for at in range(20_000, 60_000, 500):
        content[at] ^= 0xFF
    path.write_bytes(bytes(content))
    line = complaint(capsys, "convert", "in.array_record", "out@4.tfrecord")
    assert "cannot be read" in line
    assert not list(Path().glob("out-*"))


def test_an_unfinished_conversion_is_not_mixed_with_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files.write_tfrecord(Path("in.tfrecord"), files.records(50))
    _leave_unfinished(capsys)
    line = complaint(capsys, "convert", "in.tfrecord", "out.parquet", "--shards", "3")
    assert "--shards" in line
    os.utime("in.tfrecord", (1, 1))
    line = complaint(capsys, "convert", "in.tfrecord", "out.parquet", "--shards", "2")
    assert "files of SRC" in line
    succeed("convert", "in.tfrecord", "out.parquet", "--shards", "3", "--force")
    assert len(list(Path().glob("out-*-of-00003.parquet"))) == 3


def _leave_unfinished(capsys: pytest.CaptureFixture[str]) -> None:
    """Have a conversion fail after it has made its plan, as when the disk is full."""
    folder = Path("out.parquet.converting")

    def fail(*_: object) -> None:
        raise OSError("The disk is full.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wholegrain._cli.convert._run_shards", fail)
        complaint(capsys, "convert", "in.tfrecord", "out.parquet", "--shards", "2")
    assert (folder / "plan.json").exists()


def test_a_plan_that_is_no_plan_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    files.write_tfrecord(Path("in.tfrecord"), files.records(50))
    _leave_unfinished(capsys)
    Path("out.parquet.converting/plan.json").write_text('{"request": 3')
    assert "--force" in complaint(capsys, "convert", "in.tfrecord", "out.parquet")
    succeed("convert", "in.tfrecord", "out.parquet", "--force")
    assert sorted(os.listdir()) == ["in.tfrecord", "out.parquet"]


_FOREIGN = {
    "a folder": "mkdir w; echo precious > w/labels.txt",
    "a plan of something else": "mkdir w; echo {} > w/plan.json",
    "a folder in it": "mkdir -p w/files",
    "a link to a folder": "mkdir victim; echo precious > victim/labels.txt; ln -s victim w",
    "a link to an empty folder": "mkdir victim; ln -s victim w",
    "a link to nothing": "ln -s victim w",
    "a file": "echo precious > w",
}


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("made_by", _FOREIGN.values(), ids=_FOREIGN)
def test_a_folder_that_no_conversion_has_made_is_left_alone(
    made_by: str, force: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    files.write_tfrecord(Path("in.tfrecord"), files.records(5))
    subprocess.run(f"{made_by}; mv -T w out.tfrecord.converting", shell=True, check=True)
    before = sorted(Path().rglob("*")), tree(Path())
    line = complaint(capsys, "convert", "in.tfrecord", "out.tfrecord", *force)
    assert "'out.tfrecord.converting'" in line
    assert before == (sorted(Path().rglob("*")), tree(Path()))


@pytest.mark.parametrize("name", ["out.tfrecord.converted", "out.tfrecord.converting.old"])
def test_folders_of_similar_names_are_left_alone(name: str) -> None:
    files.write_tfrecord(Path("in.tfrecord"), files.records(5))
    Path(name).mkdir()
    Path(name, "labels.txt").write_text("precious")
    succeed("convert", "in.tfrecord", "out.tfrecord")
    assert Path(name, "labels.txt").read_text() == "precious"
    assert Path("out.tfrecord").exists()


def test_foreign_files_in_the_folder_of_a_conversion_stay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files.write_tfrecord(Path("in.tfrecord"), files.records(50))
    _leave_unfinished(capsys)
    work = Path("out.parquet.converting")
    foreign = ["labels.txt", ".hidden.tmp", "folder/labels.txt", "out-00000-of-00002.parquet.bak"]
    for name in foreign:
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("precious")
    Path("victim").write_text("precious")
    (work / "done-00000").symlink_to("../victim")
    succeed("convert", "in.tfrecord", "out.parquet", "--shards", "3", "--force")
    assert len(list(Path().glob("out-*-of-00003.parquet"))) == 3
    assert "was kept" in capsys.readouterr().out
    assert set(tree(work)) == {*foreign, "done-00000"}
    assert set(tree(work).values()) == {b"precious"}


@pytest.mark.parametrize("destination", ["out", "out.parquet"])
def test_a_folder_is_never_overwritten(
    destination: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write_tfrecord(Path("in.tfrecord"), files.records(5))
    Path(destination).mkdir()
    Path(destination, "labels.txt").write_text("precious")
    to = ("--to", "folder") if destination == "out" else ()
    line = complaint(capsys, "convert", "in.tfrecord", destination, "--force", *to)
    assert "does not remove folders" in line
    assert sorted(os.listdir()) == ["in.tfrecord", destination]
    assert Path(destination, "labels.txt").read_text() == "precious"


def test_a_file_that_appears_during_a_conversion_is_not_overwritten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files.write_tfrecord(Path("in.tfrecord"), files.records(50))
    _leave_unfinished(capsys)
    other = Path("out-00001-of-00002.parquet")
    other.write_text("precious")
    arguments = ["convert", "in.tfrecord", "out.parquet", "--shards", "2"]
    assert repr(str(other)) in _said(capsys, arguments)
    assert other.read_text() == "precious"
    other.unlink()
    succeed(*arguments)
    assert sum(len(open_source(find(str(path)))) for path in Path().glob("out-*")) == 50


def _said(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err


def test_what_is_overwritten_stays_until_the_new_files_are_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write_tfrecord(Path("in.tfrecord"), files.records(5))
    Path("out.parquet").write_text("precious")

    def fail(*_: object) -> None:
        raise OSError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr("wholegrain._cli.convert._run_shards", fail)
        complaint(capsys, "convert", "in.tfrecord", "out.parquet", "--force")
    assert Path("out.parquet").read_text() == "precious"
    succeed("convert", "in.tfrecord", "out.parquet")  # It goes on with what was forced.
    assert len(open_source(find("out.parquet"))) == 5


def test_verification_finds_a_shard_that_is_different(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write_tfrecord(Path("in.tfrecord"), files.records(50))
    _leave_unfinished(capsys)
    # A shard that looks finished, but is not what the source has.
    other = files.records(25, "other")
    files.write_parquet(
        Path("out.parquet.converting/out-00000-of-00002.parquet"), files.table({"record": other})
    )
    code = main(["convert", "in.tfrecord", "out.parquet", "--shards", "2", "--verify"])
    assert code == 1
    assert "Verification failed" in capsys.readouterr().out
    assert not list(Path().glob("out-*"))


def test_a_source_with_a_flipped_byte_is_not_converted(capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(files.tfrecord_bytes(files.records(50)))
    content[content.find(b"record 7")] ^= 1
    Path("in.tfrecord").write_bytes(content)
    for options in ((), ("--verify",)):
        arguments = ["convert", "in.tfrecord", "out.array_record", "--force", *options]
        line = _said(capsys, arguments)
        assert "'in.tfrecord'" in line
        assert "checksum of record 7" in line
        assert not Path("out.array_record").exists()
    assert main(["inspect", "in.tfrecord"]) == 2
    assert "checksum of record 7" in capsys.readouterr().err


def test_a_source_that_is_damaged_during_a_conversion_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files.write_parquet(Path("in.parquet"), files.table({"number": list(range(50))}))
    run_shards = convert._run_shards

    def damage(plan: Any, job: Any, numbers: Any, crew: Any, label: str) -> Any:
        if label == "Verifying":
            files.write_parquet(Path("in.parquet"), files.table({"number": [7] * 50}))
            reading.shared_reader.cache_clear()
        return run_shards(plan, job, numbers, crew, label)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "_run_shards", damage)
        assert main(["convert", "in.parquet", "out.arrow", "--verify", "--workers", "0"]) == 1
    assert "The source 'in.parquet' was changed" in capsys.readouterr().out
    assert not Path("out.arrow").exists()


def test_records_of_hugging_face_keep_their_columns(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"a": [1, 2, 3], "b": ["x", "y", "z"]}).save_to_disk("in")
    _convert("in", "out.parquet")
    assert pq.read_table("out.parquet").to_pydict() == {"a": [1, 2, 3], "b": ["x", "y", "z"]}


def test_json_of_a_folder_reads_as_people_write_it() -> None:
    files.write_parquet(Path("in.parquet"), files.table({"a": ["ä"], "b": [b"\xff"]}))
    _convert("in.parquet", "out")
    assert json.loads(Path("out/000000.json").read_text()) == {"a": "ä", "b": {"base64": "/w=="}}
