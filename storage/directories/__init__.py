"""The data directories: their contents, their owners, their checkpoints and their failures.

`data_directory` is one of them while it is owned, `directories` all of them together, with the deleted partitions until
their delay has passed. `contents` sorts what is
there by name, `identity` says whose it is, `cluster_metadata` reads what a stopped broker's metadata log has of topics;
`reserve` keeps the room that freeing space needs. A partition whose log could not be loaded is an `offline_partition`.
"""
