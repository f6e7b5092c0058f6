"""What benchmarks of the mount share: the mounts they measure, the system calls, and the processor's time."""
