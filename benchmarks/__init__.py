"""The speed of topicfs: each figure beside a reference that is measured in the same run.

`python -m benchmarks` runs everything, `python -m benchmarks --list` names it, `make bench` also draws the figures
in docs/performance.md and docs/performance/tables.md. A machine's speed drifts and others use it too, so no figure is judged alone: every *side* of a
*case* runs once a round, the order turning from round to round, and what counts is the ratio of two sides in the same
round, of which the median is given.

`frame/` has the frame: `question` what a benchmark consists of, `rounds` the measuring, `results` what came out of
it and whether a goal is reached, `table`, `plots`, `page` and `record` the ways of showing it. The questions stand in
`mount/` (against an empty filesystem and against plain files), `engine/` (against other implementations of Kafka's
formats), `peers/` (against a broker and its clients) and `spark/` (against Spark's own sources); `__main__` has the
table of all of them. What the questions about the mount share stands in `mount/setup/`.

To add one: write a module with a generator of cases and a `Benchmark` that names it, and give it a line in `MODULES`.

    def cases(conditions: Conditions) -> Cases:
        size = conditions.choose(full=64 << 20, short=8 << 20)
        with the_things_it_takes(conditions.directory) as things:      # ended whatever happens
            yield Case(
                name="128 KiB writes",
                unit=units.MEGABYTES_A_SECOND,
                sides=(Side("topicfs", lambda: ours(things, size)), Side("ext4", lambda: native(things, size))),
                goals=(Goal("topicfs", of="ext4", target=0.6, floor=0.3),),
            )

    BENCHMARK = Benchmark(name="bulk", question="How fast are large writes?", cases=cases)

A side's function does the work of one round and returns its figure; it checks that the work was done (the bytes
arrived, the counts are right) and raises WrongResultError otherwise. Many short rounds say more than few long ones: a
tenth to a quarter of a second each is enough. The `floor` is what a run fails at: a third to a half of what a loaded
machine shows, so that it finds what became two or three times slower and never a disturbance. No figure in
docs/performance/figures.json is more than four times as good (tests/benchmarks/test_floors.py). A benchmark that
cannot run here raises SkippedError with the reason.
"""
