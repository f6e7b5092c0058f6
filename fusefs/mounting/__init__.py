"""The process around a mount: its options, the mountpoint, mounting, the background, and limits.

`options` says what is asked for, `mountpoint` whether a place is fit and how it is unmounted, `system_mount` mounts,
`background` leaves the terminal, `limits` raises what the system allows (descriptors, memory, read-ahead), `stacks` tells
what all are doing.
"""
