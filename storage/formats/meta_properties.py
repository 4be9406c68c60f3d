"""`meta.properties`: names the cluster and node that own a log directory, in Kafka's format.

version=1
cluster.id=<22 characters>
node.id=<number>
directory.id=<22 characters>
kompakt.format=1        ours: the format of everything in the directory
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.files.errors import DamagedFile, ForeignDirectory, FormatFromTheFuture, MissingFile
from storage.files.files import FileSystem
from storage.files.paths import META_PROPERTIES, join

VERSION = 1
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The contents of the file."""

    cluster_id: str
    node_id: int
    directory_id: str

    def encode(self) -> bytes:
        """Returns the bytes of the file."""
        return (
            f"version={VERSION}\ncluster.id={self.cluster_id}\nnode.id={self.node_id}\n"
            f"directory.id={self.directory_id}\nkompakt.format={FORMAT}\n"
        ).encode()

    def check(self, path: str, *, cluster_id: str, node_id: int) -> None:
        """Raise ForeignDirectory if the directory belongs to another cluster or node."""
        for name, mine, found in (
            ("cluster.id", cluster_id, self.cluster_id),
            ("node.id", node_id, self.node_id),
        ):
            if mine != found:
                text = f"{path} belongs to {name} {found}, and this broker has {mine}"
                raise ForeignDirectory(text)


def read_meta_properties(fs: FileSystem, directory: str) -> MetaProperties | None:
    """Read a log directory's file. Returns None if the directory is new.

    Raises:
        DamagedFile: it is no such file, or Apache Kafka wrote it, whose data we must not open.
        FormatFromTheFuture: a later release wrote the directory.
    """
    path = join(directory, META_PROPERTIES)
    try:
        text = fs.read_bytes(path).decode()
    except MissingFile:
        return None
    except UnicodeDecodeError as error:
        raise DamagedFile(path, "it is not text") from error
    lines = (line.strip() for line in text.splitlines())
    pairs = dict(line.partition("=")[::2] for line in lines if line and not line.startswith("#"))
    try:
        found = int(pairs["kompakt.format"])
        if found > FORMAT:
            raise FormatFromTheFuture(path, found, FORMAT)
        return MetaProperties(
            cluster_id=pairs["cluster.id"],
            node_id=int(pairs["node.id"]),
            directory_id=pairs["directory.id"],
        )
    except (KeyError, ValueError) as error:
        raise DamagedFile(path, f"it lacks {error}") from error
