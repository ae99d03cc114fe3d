"""Records and their metadata."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from wholegrain import Record, RecordMetadata
from wholegrain._loader.metadata import KeylessMetadata, SeededMetadata
from wholegrain.samplers import IndexSampler


def test_metadata_print_themselves() -> None:
    assert str(RecordMetadata(3)) == "RecordMetadata(index=3, record_key=None, rng=None)"
    sampler = IndexSampler(5, shuffle=True, num_epochs=1, seed=0)
    assert str(sampler[1]) == "RecordMetadata(index=1, record_key=4, rng=Generator(Philox))"
    assert repr(RecordMetadata(3, 1)) == "RecordMetadata(index=3, record_key=1, rng=None)"


def test_removing_the_key_keeps_the_rest() -> None:
    rng = np.random.default_rng(0)
    metadata = RecordMetadata(3, 1, rng)
    without = metadata.remove_record_key()
    assert (without.index, without.record_key) == (3, None)
    assert without.rng is rng
    assert without is not metadata
    assert metadata.record_key == 1
    assert without.remove_record_key() is without


def test_records_are_mutable_values() -> None:
    record = Record(RecordMetadata(1), "x")
    assert record == Record(RecordMetadata(1), "x")
    record.data = "y"
    assert record != Record(RecordMetadata(1), "x")
    with pytest.raises(AttributeError):
        record.other = 1  # type: ignore[attr-defined]


# Metadata in a DataLoader make their generator late; that does not show.


def test_a_late_generator_is_that_of_the_sampler() -> None:
    late = SeededMetadata(7, 3, seed=5)
    expected = IndexSampler(10, num_epochs=1, seed=5)[7].rng
    assert expected is not None
    assert late.rng is not None
    assert late.rng is late.rng
    assert late.rng.integers(2**60, size=4).tolist() == expected.integers(2**60, size=4).tolist()


def test_late_metadata_are_equal_to_others_and_print_like_them() -> None:
    late = SeededMetadata(7, 3, seed=5)
    plain = RecordMetadata(7, 3, late.rng)
    assert late == plain
    assert plain == late
    assert repr(late) == repr(plain)
    assert str(late) == str(plain)
    assert isinstance(late, RecordMetadata)


def test_late_metadata_can_be_copied_replaced_and_pickled() -> None:
    late = SeededMetadata(7, 3, seed=5)
    replaced = dataclasses.replace(late, index=8)
    assert (replaced.index, replaced.record_key, replaced.rng) == (8, 3, late.rng)
    for other in (copy.deepcopy(late), pickle.loads(pickle.dumps(late))):
        assert type(other) is RecordMetadata
        assert (other.index, other.record_key) == (7, 3)
        assert other.rng is not None
        assert late.rng is not None
        assert other.rng.integers(2**60) == copy.deepcopy(late.rng).integers(2**60)


def test_without_its_key_a_record_keeps_its_late_generator() -> None:
    late = SeededMetadata(7, 3, seed=5)
    without = late.remove_record_key()
    assert type(without) is KeylessMetadata
    assert without.rng is late.rng
    assert without == RecordMetadata(7, None, late.rng)
    assert without.remove_record_key() is without
    without.rng = None
    assert without.rng is None
    assert late.rng is not None
    late.rng = None
    assert late.rng is None
