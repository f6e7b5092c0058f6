"""The process around a mount: its options, the mountpoint, mounting, the background, and limits.

`options` has the mount's options; `mountpoint` checks the mountpoint and unmounts it; `system_mount` mounts;
`background` leaves the terminal; `limits` raises the system's limits (descriptors, memory, read-ahead); `stacks`
shows what all threads and tasks are doing.
"""
