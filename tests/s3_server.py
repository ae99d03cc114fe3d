"""A real S3 server on this machine, for tests of files in a store."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def s3_bucket(name: str) -> Iterator[Any]:
    """Run a server with an empty bucket, known to this process; give a client of it."""
    moto: Any = pytest.importorskip("moto.server")
    boto3: Any = pytest.importorskip("boto3")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        settings = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
            "NO_PROXY": host,
            "no_proxy": host,
        }
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in settings.items():
                patch.setenv(variable, value)
            patch.setattr("wholegrain.sources._remote._stores", {})
            client = boto3.client("s3", endpoint_url=settings["AWS_ENDPOINT_URL"])
            client.create_bucket(Bucket=name)
            yield client
    finally:
        server.stop()
