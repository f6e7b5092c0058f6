"""The groups of a cluster, which its brokers coordinate: positions, descriptions, and members in this process.

    member ── join, sync ──► coordinator ◄── join, sync ── kcat, a Java consumer
       ▲ heartbeats, commits     │
       └───── what it holds ◄────┘

`groups` implements `coordination.membership`. `member` is the thread of one member, `requests` builds the requests to
coordinators, and `descriptions` reads how coordinators describe groups.
"""
