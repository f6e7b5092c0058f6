"""Stand-ins for what tests must control, such as disks, clocks, brokers and engines."""
