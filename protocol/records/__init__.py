"""Record batches, compiled scans."""
