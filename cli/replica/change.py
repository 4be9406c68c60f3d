"""Creates, pauses, resumes, resyncs and deletes links, and promotes mirrors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import typer

from cli.base.access import properties_of_file
from cli.base.command_end import EXIT_FAILED, complain
from cli.base.output import print_json
from cli.compact.client import CallFailed, Json, connected

ROOT = "/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLink:
    """What `kompakt replica create` was given."""

    name: str
    source: str
    source_config: Path | None
    topics: list[str]
    patterns: list[str]
    groups: list[str]
    takes_acls: bool
    compaction: str
    resync: str
    bytes_per_second: int | None

    def body(self) -> str:
        """Returns the JSON of the request. Raises CommandFailed if the file cannot be read."""
        properties = {} if self.source_config is None else properties_of_file(self.source_config)
        content = {
            "bootstrap": self.source,
            "properties": dict(properties),
            "topics": self.topics,
            "patterns": self.patterns,
            "groups": self.groups,
            "acls": self.takes_acls,
            "compaction": self.compaction,
            "resync": self.resync,
            "bytes_per_second": self.bytes_per_second,
        }
        return json.dumps(content)


def link_path(name: str) -> str:
    """Returns the path of a link below the root."""
    return f"/links/{quote(name, safe='')}"


async def create_link(url: str, link: NewLink, *, as_json: bool) -> int:
    """Create a link. Returns the exit code."""
    async with connected(url, root=ROOT) as client:
        made = await client.call("PUT", link_path(link.name), body=link.body())
    if as_json:
        print_json(made)
    else:
        typer.echo(
            f"created link {link.name}; kompakt replica status {link.name} shows its progress"
        )
    return 0


async def alter_link(url: str, name: str, changes: Mapping[str, object]) -> int:
    """Change a link. Returns the exit code."""
    async with connected(url, root=ROOT) as client:
        await client.call("PATCH", link_path(name), body=json.dumps(changes))
    typer.echo(f"changed link {name}")
    return 0


async def pause_link(url: str, name: str, *, is_paused: bool) -> int:
    """Pause or resume a link. Returns the exit code."""
    action = "pause" if is_paused else "resume"
    async with connected(url, root=ROOT) as client:
        await client.call("POST", f"{link_path(name)}/{action}")
    typer.echo(f"{action}d link {name}")
    return 0


async def _post(url: str, path: str, query: Mapping[str, str] | None) -> Json:
    """Returns the answer; a refusal first says what is missing, a line for each partition."""
    async with connected(url, root=ROOT) as client:
        try:
            return await client.call("POST", path, query)
        except CallFailed as refused:
            for sentence in refused.answer.get("missing", []):
                complain(sentence)
            raise


async def resync_link(
    url: str,
    name: str,
    topic: str | None,
    partition: int | None,
    *,
    puts_aside: bool,
    as_json: bool,
) -> int:
    """Copy failed partitions once more. Returns 1 if one of them cannot be."""
    query = {"put_aside": "true" if puts_aside else "false"}
    query |= {} if topic is None else {"topic": topic}
    query |= {} if partition is None else {"partition": str(partition)}
    done = await _post(url, f"{link_path(name)}/resync", query)
    if as_json:
        print_json(done)
    else:
        _print_resyncs(name, done)
    return EXIT_FAILED if done["refused"] else 0


def _print_resyncs(name: str, done: Json) -> None:
    for each in done["started"]:
        typer.echo(f"copying {each['topic']}-{each['partition']} once more")
    for each in done["refused"]:
        typer.echo(f"{each['topic']}-{each['partition']} is not copied once more: {each['reason']}")
    typer.echo(f"kompakt replica status {name} shows the progress")


async def delete_link(url: str, name: str) -> int:
    """Delete a link. Returns the exit code."""
    async with connected(url, root=ROOT) as client:
        await client.call("DELETE", link_path(name))
    typer.echo(f"deleted link {name}")
    return 0


async def promote_mirror(url: str, topic: str, *, is_forced: bool, as_json: bool) -> int:
    """Promote a mirror, and list what it lacks. Returns the exit code."""
    query = {"force": "true"} if is_forced else None
    done = await _post(url, f"/mirrors/{quote(topic, safe='')}/promote", query)
    if as_json:
        print_json(done)
    else:
        _print_promoted(topic, done)
    return 0


async def fail_over(url: str, name: str, *, as_json: bool) -> int:
    """Promote all mirrors of a link without its source. Returns the exit code."""
    async with connected(url, root=ROOT) as client:
        link = await client.call("GET", link_path(name))
        topics = sorted({each["topic"] for each in link["partitions"]})
        done = {}
        for topic in topics:
            path = f"/mirrors/{quote(topic, safe='')}/promote"
            done[topic] = await client.call("POST", path, {"force": "true"})
            if not as_json:
                _print_promoted(topic, done[topic])
    if as_json:
        print_json({"topics": done})
    elif not topics:
        typer.echo(f"link {name} has no mirrors")
    return 0


def _print_promoted(topic: str, done: Json) -> None:
    missing = done["missing"]
    typer.echo(f"{topic} is an ordinary topic now{'; it lacks:' if missing else ''}")
    for sentence in missing:
        typer.echo(f"  {sentence}")
