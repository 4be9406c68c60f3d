"""`kompakt pipeline ...`: the jobs on Spark. The broker's command line loads this module by name.

A `<noun>/command.py` declares a command's arguments. Neither this module nor these import Spark before
a job runs, so that `kompakt --help` stays fast and a machine without Spark can say what to install.
"""

from __future__ import annotations

import typer

from pipeline.audit import command as audit_command
from pipeline.cleaning import command as clean_command
from pipeline.load import command as load_command
from pipeline.spark import jars_command
from pipeline.tables import command as table_command

app = typer.Typer(
    name="pipeline",
    help="Tables from compacted topics and back, audits and cleaning beyond one machine, on Spark.",
    no_args_is_help=True,
)

app.command(name="audit")(audit_command.audit)
app.command(name="clean")(clean_command.clean)
app.command(name="load")(load_command.load)
app.command(name="jars")(jars_command.fetch_jars)
app.add_typer(table_command.app)
