"""PyTorch: a loader that its frameworks accept, tensors, and the shard of this rank."""

from wholegrain.sources._optional import require

require("torch", extra="torch", purpose="`wholegrain.torch`")

from wholegrain.torch._loader import Loader as Loader  # noqa: E402
from wholegrain.torch._loader import loader as loader  # noqa: E402
from wholegrain.torch._ranks import ShardByRank as ShardByRank  # noqa: E402
from wholegrain.torch._tensors import to_tensors as to_tensors  # noqa: E402
