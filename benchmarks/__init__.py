"""The speed of topicfs: each figure is compared with a reference that is measured in the same run.

`python -m benchmarks` runs all benchmarks, `python -m benchmarks --list` lists them, and `make bench` also updates
docs/performance.md and docs/performance/tables.md. A machine's speed drifts, and other programs use the machine too,
so no figure is judged alone. Every *side* of a *case* runs once per round, in an order that alternates. The result is
the median, over all rounds, of the ratio of two sides in the same round.

`frame/` has the frame: `question` has the parts of a benchmark, `rounds` measures, `results` has the figures and the
verdicts on goals, and `table`, `plots`, `page` and `record` make the output. The benchmarks are in `mount/` (compared
with an empty filesystem and with plain files), `engine/` (with other implementations of Kafka's formats), `peers/`
(with a broker and its clients) and `spark/` (with Spark's own sources); `__main__` has a table of all of them.
`mount/setup/` has the common parts of the benchmarks of the mount.

To add a benchmark, write a module with a generator of cases and a `Benchmark` with this generator, and add it to
`MODULES`.

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

A side's function does the work of one round and returns its figure. It checks that the work was done (the bytes
arrived, the counts are right), and otherwise raises WrongResultError. Many short rounds are better than a few long
rounds: each should take 0.1 to 0.25 s. A run fails if a ratio is below its `floor`, which is a third to a half of the
ratio on a loaded machine. So a run fails if work has become two or three times slower, but not because of other
programs. No figure in docs/performance/figures.json is more than four times as good as its floor
(tests/benchmarks/test_floors.py). A benchmark that cannot run here raises SkippedError with the reason.
"""
