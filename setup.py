"""The compiled modules: ordinary Python sources in Cython's pure mode, listed once here.

Everything else about the project is in pyproject.toml.
"""

import ast
import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

COMPILED = (
    "storage/codec/binary/memory.py",
    "storage/codec/binary/header_writer.py",
    "storage/counts/topic_counts.py",
    "storage/codec/headers.py",
    "storage/codec/batch.py",
    "storage/codec/record_parts.py",
    "storage/codec/columns.py",
    "storage/codec/compression/unlocked.py",
    "storage/codec/value_copy.py",
    "storage/codec/batch_writer.py",
    "storage/indexes/search.py",
    "storage/segment/sparse.py",
    "inspection/check/sound_batches.py",
    "storage/compaction/survivors.py",
    "storage/compaction/digests.py",
    "storage/compaction/offset_map.py",
    "fusefs/requests/device.py",
    "fusefs/requests/request_counts.py",
    "fusefs/requests/common_requests.py",
    "fusefs/forms/values.py",
    "fusefs/forms/kv.py",
    "fusefs/forms/json_strings.py",
    "fusefs/forms/json_lines.py",
    "pipeline/source/arrow_buffers.py",
)
"""Each of these modules also runs uncompiled, with the same results."""

CONSTANTS = ("storage/codec/binary/fields.py", "fusefs/requests/wire.py")
"""Modules of numbers. Compiled modules use them as C constants, from a `.pxd` generated here."""


def write_constants(source: str) -> None:
    """Write the numbers of a module to a `.pxd` beside it, unless the file is up to date."""
    assigned = [node for node in ast.parse(Path(source).read_text()).body if isinstance(node, ast.Assign)]
    numbers = [f"    {node.targets[0].id} = {ast.literal_eval(node.value)}\n" for node in assigned]
    text = f"# Made by setup.py of {Path(source).name}.\n\ncdef enum:\n{''.join(numbers)}"
    target = Path(source).with_suffix(".pxd")
    # A newer file would make everything compile again.
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


def extensions() -> list[Extension]:
    """Return one extension per module, with its name in the package: `topicfs/` has links to the source folders."""
    return [
        Extension(
            f"topicfs.{source}".removesuffix(".py").replace("/", "."),
            [f"topicfs/{source}"],
            # No debug symbols: nobody steps through Cython's code.
            extra_compile_args=["-O3", "-fno-strict-aliasing", "-g0"],
        )
        for source in COMPILED
    ]


for constants in CONSTANTS:
    write_constants(f"topicfs/{constants}")

PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

setup(
    options={"build_ext": {"parallel": PROCESSORS}},
    ext_modules=cythonize(
        extensions(),
        build_dir="build/cython",
        nthreads=PROCESSORS,
        language_level=3,
        compiler_directives={
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
        },
    ),
)
