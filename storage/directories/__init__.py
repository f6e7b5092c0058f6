"""The data directories: what stands in each, who owns it, its checkpoints, and one that fails.

`data_directory` is one of them while it is owned, `directories` all of them together. `contents` sorts what stands
there by name, `identity` says whose it is; `deletion` keeps deleted partitions until their delay has passed, `reserve` the
room that freeing space needs. A partition whose log could not be loaded is `offline`.
"""
