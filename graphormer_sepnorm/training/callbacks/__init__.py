"""What a training does at its hooks: averages, checkpoints, records, logs, progress, stopping."""
