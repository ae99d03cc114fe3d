"""The one thing `pyproject.toml` cannot say: the C extension is optional.

Without a compiler the install still succeeds, and the numpy path serves.
"""

import os

from setuptools import Extension, setup

native = Extension(
    "wholegrain._core._native",
    sources=[
        "src/wholegrain/_core/_native.c",
        "src/wholegrain/_core/_native_bins.c",
        "src/wholegrain/_core/_native_copy.c",
        "src/wholegrain/_core/_native_shuffle.c",
        "src/wholegrain/_core/_native_texts.c",
        "src/wholegrain/_core/_native_tfrecord.c",
        "src/wholegrain/_core/_native_walk.c",
    ],
    depends=["src/wholegrain/_core/_native.h"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    py_limited_api=True,
    extra_compile_args=["-O3"],
    optional=True,
)

setup(
    ext_modules=[] if os.environ.get("WHOLEGRAIN_PURE") else [native],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
