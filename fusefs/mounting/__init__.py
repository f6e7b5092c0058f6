"""The process around a mount, piece by piece.

`options` says what is asked for, `mountpoint` whether a place is fit and how it is unmounted, `background` leaves the
terminal, `limits` raises what the system allows (descriptors, memory, read-ahead), `request_loop` chooses the way
in which requests are fetched, and fetches them in fewer steps than pyfuse3 does, `stacks` tells what all are doing.
"""
