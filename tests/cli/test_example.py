import contextlib
import functools
import importlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wholegrain._cli import example

_FEATURES = st.one_of(
    st.tuples(st.just(example.BYTES), st.lists(st.binary(max_size=20), max_size=4)),
    st.tuples(st.just(example.FLOAT), st.lists(st.floats(width=32, allow_nan=False), max_size=4)),
    st.tuples(st.just(example.INT64), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)),
)
_EXAMPLES = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), _FEATURES)


@given(_EXAMPLES)
def test_features_come_back(features: dict[str, Any]) -> None:
    assert example.decode(example.encode(features)) == features


@given(st.binary(max_size=200))
def test_other_bytes_are_told_apart_or_read(record: bytes) -> None:
    with contextlib.suppress(example.NotAnExampleError):
        example.decode(record)


@given(_EXAMPLES, st.data())
def test_what_is_cut_off_is_never_a_crash(features: dict[str, Any], data: st.DataObject) -> None:
    record = example.encode(features)
    cut = data.draw(st.integers(0, len(record)))
    with contextlib.suppress(example.NotAnExampleError):
        example.decode(record[:cut])


@functools.cache
def _message() -> Any:
    """Return protobuf's own class of `tf.train.Example`, from the definition of its fields."""
    pytest.importorskip("google.protobuf")
    pb = importlib.import_module("google.protobuf.descriptor_pb2")
    pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
    factory = importlib.import_module("google.protobuf.message_factory")
    kinds = pb.FieldDescriptorProto
    file = pb.FileDescriptorProto(name="x.proto", package="x", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, Any], parent: Any = None) -> Any:
        made = (file.message_type if parent is None else parent.nested_type).add(name=name)
        for number, (field, label, kind) in enumerate(fields, 1):
            added = made.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = kinds.TYPE_MESSAGE, kind
            else:
                added.type = kind
        return made

    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    message("BytesList", ("value", many, kinds.TYPE_BYTES))
    message("FloatList", ("value", many, kinds.TYPE_FLOAT))
    message("Int64List", ("value", many, kinds.TYPE_INT64))
    lists = [("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")]
    feature = message("Feature", *[(name, one, f".x.{kind}") for name, kind in lists])
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message("Features", ("feature", many, ".x.Features.FeatureEntry"))
    entry = message(
        "FeatureEntry",
        ("key", one, kinds.TYPE_STRING),
        ("value", one, ".x.Feature"),
        parent=features,
    )
    entry.options.map_entry = True
    message("Example", ("features", one, ".x.Features"))
    pool.Add(file)
    return factory.GetMessageClass(pool.FindMessageTypeByName("x.Example"))


@given(_EXAMPLES)
def test_protobuf_reads_and_writes_the_same(features: dict[str, Any]) -> None:
    read = _message().FromString(example.encode(features))
    assert set(read.features.feature) == set(features)
    for name, (kind, values) in features.items():
        feature = read.features.feature[name]
        field = {1: "bytes_list", 2: "float_list", 3: "int64_list"}[kind]
        assert list(getattr(feature, field).value) == values
    assert example.decode(read.SerializeToString()) == features


def test_floats_are_those_of_32_bits() -> None:
    kind, values = example.decode(example.encode({"x": (example.FLOAT, [0.1, math.inf])}))["x"]
    assert kind == example.FLOAT
    assert values == [0.10000000149011612, math.inf]
