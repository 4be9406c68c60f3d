"""A wheel built from a clean copy of the sources starts a broker outside the checkout."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
import venv
from pathlib import Path

from tests.harness.examples import IS_SOAK
from tests.harness.translated import translated

ROOT = Path(__file__).parents[1]
START_SECONDS_MAX = 30
HOUR = 3600.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_wheel_starts_a_broker_outside_the_checkout(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    for name in filter(None, tracked):
        if (ROOT / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, sources / name)
    if not IS_SOAK:
        copy_compiled(sources, tracked)
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(sources)]
    subprocess.run(build, check=True, cwd=tmp_path, capture_output=True)
    (wheel,) = tmp_path.glob("kompakt-*.whl")

    environment = tmp_path / "venv"
    venv.create(environment)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python")]
    install = [*pip, "install", "--quiet", str(wheel)]
    # With the checkout on its path, pip would find everything installed already.
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(install, check=True, cwd=tmp_path, env=outside)

    port, http_port = free_port(), free_port()
    command = [str(environment / "bin" / "kompakt"), "serve"]
    command += ["--override", f"listeners=PLAINTEXT://127.0.0.1:{port}"]
    command += ["--override", f"http.listener=127.0.0.1:{http_port}"]
    command += ["--override", f"log.dirs={tmp_path / 'data'}"]
    broker = subprocess.Popen(command, cwd=tmp_path, env=outside)
    try:
        assert becomes_ready(http_port), "the installed broker never became ready"
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    finally:
        broker.terminate()
        assert broker.wait(timeout=30) == 0


def copy_compiled(sources: Path, tracked: list[str]) -> None:
    """Copy what the build of the checkout has made of its present sources: compiling takes minutes."""
    kind = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for name in (each for each in tracked if each.endswith(".pyx")):
        generated = translated(name)
        compiled = (ROOT / name).with_suffix(suffix)
        if generated is None or compiled.stat().st_mtime < generated.stat().st_mtime:
            continue
        copied = shutil.copy(generated, sources / generated.relative_to(ROOT))
        target = sources / "build" / f"lib.{kind}" / compiled.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(compiled, target)
        # The build installs a Cython of its own, whose files are newer than anything that is there now.
        for made, at in ((copied, time.time() + HOUR), (target, time.time() + 2 * HOUR)):
            os.utime(made, (at, at))


def becomes_ready(http_port: int) -> bool:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{http_port}/health/ready", timeout=5
            ) as answer:
                return bool(answer.status == 200)
        except OSError:
            time.sleep(0.1)
    return False
