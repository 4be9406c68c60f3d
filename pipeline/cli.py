"""`kompakt pipeline ...`: the jobs on Spark. The broker's command line loads this module by name.

A `<noun>_command.py` says what may be typed. Nothing here and nothing there imports Spark before a
job runs, so that `kompakt --help` costs nothing and a machine without Spark is told what to install.
"""

from __future__ import annotations

import typer

from pipeline import audit_command, clean_command, jars_command, table_command

app = typer.Typer(
    name="pipeline",
    help="Tables from compacted topics, audits and cleaning beyond one machine, on Spark.",
    no_args_is_help=True,
)

app.command(name="audit")(audit_command.audit)
app.command(name="clean")(clean_command.clean)
app.command(name="jars")(jars_command.fetch_jars)
app.add_typer(table_command.app)
