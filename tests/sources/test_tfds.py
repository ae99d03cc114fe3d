import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain.testing import check_source

pytest.importorskip("array_record")
# TFDS warns about itself when it is imported and used.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(name="source", scope="module")
def _source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("importlib_resources")  # which TFDS needs to write
    tfds: Any = pytest.importorskip("tensorflow_datasets")
    tmp_path = tmp_path_factory.mktemp("tfds")

    class Digits(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc, name-defined, unused-ignore]
        VERSION = tfds.core.Version("1.0.0")
        MODULE_PATH = Path(__file__)
        pkg_dir_path = tmp_path

        def _info(self) -> Any:
            features = tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Tensor(shape=(2, 2), dtype=np.uint8),
                    "label": tfds.features.Scalar(dtype=np.int64),
                }
            )
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager: Any) -> Any:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Any:
            for i in range(20):
                yield i, {"image": np.full((2, 2), i, np.uint8), "label": i}

    builder = Digits(data_dir=str(tmp_path / "data"), file_format="array_record")
    builder.download_and_prepare()
    # Read as by someone who has the files, and not the class that wrote them.
    return tfds.builder_from_directory(builder.data_dir).as_data_source(split="train")


def test_a_tfds_source_is_read_in_any_order(source: Any) -> None:
    assert len(source) == 20
    ds = wg.MapDataset.source(source).shuffle(seed=1).map(lambda row: int(row["label"]))
    assert sorted(ds) == list(range(20))
    assert sorted(pickle.loads(pickle.dumps(source))[3]) == ["image", "label"]
    check_source(source)


def test_a_tfds_source_is_batched(source: Any) -> None:
    batches: list[Any] = list(wg.MapDataset.source(source).batch(8).to_iter_dataset())
    assert [batch["image"].shape for batch in batches] == [(8, 2, 2), (8, 2, 2), (4, 2, 2)]
    assert batches[0]["image"].dtype == np.uint8
