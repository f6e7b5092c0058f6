"""The metrics of a daemon for Prometheus: `table` names each metric, `collector` reads the counts for a scrape.

Nothing here runs between two scrapes. The engine and the request loop add to plain numbers (`storage.counts`,
`fusefs.requests.request_counts`); a scrape reads them in a thread, with a rest after every two milliseconds. `engine` makes
samples of an engine's, `scrape` has the pace and the histograms, `server` answers over HTTP, `address` is where it listens,
and `gauges` is the state of the mount.
"""
