"""Names of the meta features that pipelines may attach to an element."""

from typing import Final

RECORD: Final = "_record"
RECORD_KEY: Final = "_record_key"
DATASET_INDEX: Final = "_dataset_index"
EPOCH: Final = "_epoch"
INDEX: Final = "_index"
SEED: Final = "_seed"

META_FEATURES: Final = frozenset({DATASET_INDEX, EPOCH, INDEX, RECORD, RECORD_KEY, SEED})
