"""What a report tells: numbers that tasks collect and that add up, plots of them, and the page around these.

`histograms` counts by time and by size in bounded room, `numbers` holds all there is of a partition and `rows` carries
it; `counting` and `segments` collect it from files, `records` from brokers. `choice` says which topics get a plot of
their own, `plots` draws them, `sections` and `tables` put them into words, `page` writes all down.
"""
