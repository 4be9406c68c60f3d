"""The checkout of another release: where it is looked for, and what a run says without one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.base.checkout import Checkout, other_checkout


def test_the_other_checkout_is_the_one_of_the_variable_with_its_own_python(tmp_path: Path) -> None:
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()

    assert other_checkout({"KOMPAKT_BENCH_BEFORE": str(tmp_path)}) == Checkout(
        tmp_path, str(python)
    )


@pytest.mark.parametrize("named", [None, "", "empty"])
def test_without_a_checkout_that_is_installed_the_error_says_what_to_do(
    named: str | None, tmp_path: Path
) -> None:
    environ = {} if named is None else {"KOMPAKT_BENCH_BEFORE": named and str(tmp_path / named)}

    with pytest.raises(RuntimeError, match=r"^set KOMPAKT_BENCH_BEFORE .*`make \.venv/"):
        other_checkout(environ)


def test_a_checkout_is_named_by_its_tag_or_commit_and_a_plain_folder_by_itself(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "before"
    folder.mkdir()
    checkout = Checkout(folder, "")
    assert checkout.name == "Kompakt at before"

    _git(folder, "init", "--quiet")
    _git(folder, "commit", "--quiet", "--allow-empty", "--message=one")
    commit = _git(folder, "rev-parse", "--short", "HEAD")
    assert checkout.name == f"Kompakt at {commit}"

    _git(folder, "tag", "v1.2")
    assert checkout.name == "Kompakt at v1.2"


def _git(folder: Path, *arguments: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", *author, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
