"""Record batches in memory: walk, validate, recompress."""
