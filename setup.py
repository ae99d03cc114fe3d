"""What `pyproject.toml` cannot say: the C extension is optional, and one build of it serves many.

Without a compiler the install still succeeds, and the numpy path serves. Pythons without the GIL
have no stable ABI before 3.15, so each of them needs a build of its own.
"""

import os
import sysconfig

from setuptools import Extension, setup

has_gil = not sysconfig.get_config_var("Py_GIL_DISABLED")
is_pure = bool(os.environ.get("WHOLEGRAIN_PURE"))

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
    # The headers for Windows do not say by themselves that there is no GIL.
    define_macros=[("Py_LIMITED_API", "0x030B0000") if has_gil else ("Py_GIL_DISABLED", "1")],
    py_limited_api=has_gil,
    extra_compile_args=["/O2" if os.name == "nt" else "-O3"],
    optional=True,
)

setup(
    ext_modules=[] if is_pure else [native],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if has_gil and not is_pure else {},
)
