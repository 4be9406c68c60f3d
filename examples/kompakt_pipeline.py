"""`kompakt pipeline` as a program for spark-submit: its arguments follow the name of this file."""

from pipeline.cli import app

app()
