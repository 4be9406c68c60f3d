"""The key that signs: created once, durable, and of use to those who have only its public part."""

from __future__ import annotations

import stat
from pathlib import Path
from random import Random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from storage.files.errors import DamagedFile
from storage.files.local_files import LocalFileSystem
from storage.files.paths import SIGNING_KEY
from storage.files.signing_key import SigningKey, verify
from tests.harness.memory_fs import Loss, MemoryFileSystem


def test_a_signature_holds_for_its_data_and_key_alone(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    key = SigningKey.load_or_create(fs, str(tmp_path))
    (tmp_path / "other").mkdir()
    other = SigningKey.load_or_create(fs, str(tmp_path / "other"))
    signature = key.sign(b"data")

    assert verify(key.public_key, b"data", signature)
    assert not verify(key.public_key, b"date", signature)
    assert not verify(other.public_key, b"data", signature)
    assert not verify(key.public_key, b"data", signature[:-1])
    assert not verify(b"short", b"data", signature)


def test_it_is_created_once_for_its_owner_only(tmp_path: Path) -> None:
    first = SigningKey.load_or_create(LocalFileSystem(), str(tmp_path))
    again = SigningKey.load_or_create(LocalFileSystem(), str(tmp_path))

    assert again.public_key == first.public_key
    assert again.sign(b"data") == first.sign(b"data")
    assert stat.S_IMODE((tmp_path / SIGNING_KEY).stat().st_mode) == 0o600


def test_a_key_that_has_signed_survives_a_power_cut() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("data")
    fs.sync_directory("/")
    key = SigningKey.load_or_create(fs, "data")

    after = fs.after_crash(Loss.EVERYTHING, Random(0))

    assert SigningKey.load_or_create(after, "data").public_key == key.public_key


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not a key\n", id="no PEM"),
        pytest.param(
            Ed448PrivateKey.generate().private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
            ),
            id="another algorithm",
        ),
    ],
)
def test_a_file_without_such_a_key_is_refused_and_stays(content: bytes, tmp_path: Path) -> None:
    (tmp_path / SIGNING_KEY).write_bytes(content)

    with pytest.raises(DamagedFile, match=r"signing\.key"):
        SigningKey.load_or_create(LocalFileSystem(), str(tmp_path))

    assert (tmp_path / SIGNING_KEY).read_bytes() == content
