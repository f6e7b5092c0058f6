"""The groups of a cluster, which its brokers coordinate: positions, descriptions, and members in this process.

    member ── join, sync ──► coordinator ◄── join, sync ── kcat, a Java consumer
       ▲ heartbeats, commits     │
       └───── what it holds ◄────┘

`groups` is what the others see (`coordination.membership`); `member` is the thread of one member; `requests` says in values
what is asked of a coordinator; `descriptions` reads what it tells about groups.
"""
