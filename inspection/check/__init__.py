"""The check of every byte of a data directory: findings, each with file, position and cause. Nothing is changed or locked."""
