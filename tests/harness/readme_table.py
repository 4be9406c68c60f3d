"""Generates the README's table of APIs from the table of served APIs.

python -m tests.harness.readme_table     writes it into the README
"""

from __future__ import annotations

from pathlib import Path

from protocol.wire.api_keys import APIS, Api

README = Path(__file__).resolve().parents[2] / "README.md"
BEGIN = "<!-- apis: python -m tests.harness.readme_table -->\n"
END = "<!-- end of apis -->\n"


def api_table() -> str:
    """Returns every API with its key and versions, in Markdown."""
    rows = [f"| {api.name} | {int(api.key)} | {_versions(api)} |\n" for api in APIS.values()]
    return "".join(["| API | key | versions |\n", "|---|---|---|\n", *rows])


def with_table(readme: str) -> str:
    """Returns the README's text with the current table."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + "\n" + api_table() + "\n" + END + tail


def _versions(api: Api) -> str:
    advertised = f"{api.version_min}-{api.version_max}"
    if api.version_min == api.version_max:
        advertised = str(api.version_min)
    if api.served_min == api.version_min:
        return advertised
    return f"{advertised} (answered from {api.served_min} on, as by Kafka 4)"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")
