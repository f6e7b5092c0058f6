"""The metrics of a daemon for Prometheus: `table` names each metric, `collector` reads the counts for a scrape.

Nothing runs between two scrapes. The engine and the request loop increment plain numbers (`storage.counts`,
`fusefs.requests.request_counts`); a scrape reads these numbers in a thread that pauses every two milliseconds.
`engine` makes the samples of an engine. `scrape` has the pace and the histograms, `server` answers over HTTP, and
`address` parses the server's address.
"""
