"""Common parts of the benchmarks of the mount: the mounts they measure, the system calls, and timing."""
