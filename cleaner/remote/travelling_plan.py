"""Converts a cleaning plan to a `RemotePlan` in the broker, and back in the executor."""

from __future__ import annotations

from dataclasses import replace

from cleaner.remote.plan import RemotePlan
from cleaner.remote.segment import sealed_segment
from cleaner.rules.cleaning_plan import CleaningPlan
from cleaner.rules.hold import Hold
from cleaner.rules.pick import Reason
from storage.files.files import FileSystem
from storage.formats.key_sidecar import hash_key_check
from storage.formats.log_config import LogConfig
from storage.formats.topic_partition import TopicPartition
from storage.log.cleaning_view import CleaningView, empty_row


def remote_plan(
    plan: CleaningPlan, *, lease: str, log_dir: str, directory: str, decompressed_bytes_max: int
) -> RemotePlan:
    """Returns the broker's plan in the form for an executor. Pure.

    Args:
        directory: the log's directory, below `log_dir`.
    """
    view, config = plan.view, plan.view.config
    return RemotePlan(
        lease=lease,
        topic=view.topic_partition.topic,
        partition=view.topic_partition.partition,
        log_dir=log_dir,
        directory=directory,
        hash_key_check=hash_key_check(view.hash_key).hex(),
        generation=view.generation,
        log_start_offset=view.log_start_offset,
        clean_offset=view.clean_offset,
        start_offset=plan.start_offset,
        end_offset=plan.end_offset,
        now_ms=plan.now_ms,
        stamp_ms=plan.stamp_ms,
        hold_offset=plan.hold.offset,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        keeps_unkeyed=config.keeps_unkeyed_records,
        decompressed_bytes_max=decompressed_bytes_max,
        producer_last_offsets=view.producer_last_offsets,
        producer_marker_epochs=dict(view.producer_marker_epochs),
        sealed_rows=view.sealed_rows,
    )


def cleaning_plan_from(plan: RemotePlan, fs: FileSystem, hash_key: bytes) -> CleaningPlan:
    """Returns the plan for the cleaner's code; a pass does not read the fields set to defaults."""
    directory = plan.log_directory
    config = replace(
        LogConfig(),
        cleanup_policy=("compact",),
        segment_bytes=plan.segment_bytes,
        segment_index_bytes=plan.segment_index_bytes,
        index_interval_bytes=plan.index_interval_bytes,
        delete_retention_ms=plan.delete_retention_ms,
        compaction_unkeyed_records="keep" if plan.keeps_unkeyed else "drop",
    )
    view = CleaningView(
        topic_partition=TopicPartition(plan.topic, plan.partition),
        config=config,
        segments=tuple(sealed_segment(fs, directory, row) for row in plan.sealed_rows),
        generation=plan.generation,
        clean_offset=plan.clean_offset,
        has_history=False,
        active_row=empty_row(plan.end_offset),
        log_start_offset=plan.log_start_offset,
        last_stable_offset=plan.end_offset,
        high_watermark=plan.end_offset,
        log_end_offset=plan.end_offset,
        producer_last_offsets=plan.producer_last_offsets,
        producer_marker_epochs=plan.producer_marker_epochs,
        hash_key=hash_key,
    )
    return CleaningPlan(
        view=view,
        reason=Reason.REQUESTED,
        start_offset=plan.start_offset,
        end_offset=plan.end_offset,
        dirty_ratio=0.0,
        now_ms=plan.now_ms,
        stamp_ms=plan.stamp_ms,
        hold=Hold(offset=plan.hold_offset, by=""),
    )
