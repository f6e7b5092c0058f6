"""Stand-ins for what tests must control: a disk, a clock."""
