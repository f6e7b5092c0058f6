"""Common parts of the benchmarks of the mount: the measured mounts, the system calls, and timing."""
