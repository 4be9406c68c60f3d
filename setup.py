"""The compiled modules. Everything else about the distribution is in pyproject.toml."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

MODULES = (
    "protocol.records.batch_run",
    "protocol.records.batch_scan",
    "protocol.records.batch_tally",
    "protocol.records.offset_commits",
    "protocol.records.plain_fetch",
    "protocol.records.plain_produce",
    "protocol.records.record_columns",
    "protocol.records.record_walk",
    "server.net.send_thread",
    "storage.batches.record_search",
    "storage.files.sync_threads",
    "cleaner.kernel.kernel",
    "cleaner.kernel.verify_output",
    "cleaner.kernel.find_key",
    "cleaner.kernel.key_proof",
    "cleaner.kernel.key_counts",
    "cleaner.kernel.expired_keys",
    "cleaner.kernel.key_sketch",
    "cleaner.kernel.row_hashes",
    "cleaner.kernel.live_records",
    "cleaner.kernel.log_comparison",
)

# These options come after CFLAGS and would override them. -g0 overrides Python's own -g, which would add
# a quarter to the build time and make the files five times as large.
OPTIMIZATION = () if "-O" in os.environ.get("CFLAGS", "") else ("-O3",)

# gcc warns although a function's result says that it has filled the record before the record is read.
WARNINGS = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-maybe-uninitialized")


class BuildCompiled(build_ext):
    """Builds the modules in parallel, or exits with one sentence about what the machine lacks."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        header = Path(sysconfig.get_paths()["include"], "Python.h")
        if shutil.which(self.compiler.compiler[0]) is None or not header.exists():
            sys.exit(
                "Kompakt compiles some modules and needs a C compiler and Python's headers: "
                "install them, for example with `apt-get install gcc python3-dev`."
            )
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        sources = [*ext.sources, *ext.depends]
        if self.force or newer_group(sources, self.get_ext_fullpath(ext.name), "newer"):
            number = MODULES.index(ext.name) + 1
            sys.stdout.write(f"compiling {ext.name} ({number} of {len(MODULES)})\n")
            sys.stdout.flush()
        super().build_extension(ext)


def extension(module: str) -> Extension:
    return Extension(
        module,
        [module.replace(".", "/") + ".pyx"],
        include_dirs=["protocol/records", "cleaner/kernel"],
        depends=[
            str(path)
            for pattern in ("*/*/*.h", "*/*/*.pxd", "*/*/*.pxi", "setup.py")
            for path in Path().glob(pattern)
        ],
        extra_compile_args=[*OPTIMIZATION, "-g0", *WARNINGS],
    )


# The Makefile sets it after `build_ext --inplace`, so that pip does not build a second time.
are_in_place = os.environ.get("KOMPAKT_MODULES") == "in-place"
found = [extension(module) for module in MODULES if Path(extension(module).sources[0]).exists()]

setup(
    cmdclass={"build_ext": BuildCompiled},
    ext_modules=cythonize([] if are_in_place else found, language_level=3),
)
