"""Tests of every script in examples/, and of the first session that `make run` plays."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from testing.broker.broker import running_broker
from testing.broker.libraries import UnavailableError, find_java
from testing.processes import started
from tests.doubles.waiting import wait_until
from tests.examples.conftest import ROOT, shell
from tests.examples.test_documents import LOG_DIRS

pytestmark = pytest.mark.slow


def test_every_script_of_the_folder_is_tested_here():
    """Every script in examples/ has a test in this file."""
    assert [
        "README.md",
        "article_segments.py",
        "copy-a-topic.sh",
        "dead-brokers-disk.sh",
        "follow-with-jq.sh",
        "frame_of_pandas.py",
        "frame_of_polars.py",
        "mirror-and-query.sh",
        "nightly-batch.sh",
        "old_hash.py",
        "produce-and-consume.sh",
        "query_with_duckdb.py",
        "queue-service.sh",
        "queue-worker.sh",
        "replay-a-time-range.sh",
        "spark-word-count.sh",
        "word_count.py",
    ] == sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_file())


@pytest.mark.fuse
def test_produce_and_consume(mounted):
    """The script partitions by key like Kafka's producer; the offsets of each partition begin at 0 and have no gaps."""
    assert (
        "partition 0, offset 0: carl ordered 1 fig\n"
        "partition 1, offset 0: anna ordered 2 pears\n"
        "partition 1, offset 1: anna ordered 3 plums\n"
    ) == shell(mounted, "examples/produce-and-consume.sh")


@pytest.mark.fuse
def test_copy_a_topic(mounted):
    """The copy of a topic has the same keys, values, times and partitions as the topic."""
    shell(mounted, "examples/produce-and-consume.sh && examples/copy-a-topic.sh shop copy")
    for partition in (0, 1):
        original = (mounted / f"mnt/shop/{partition}/log.json").read_text()
        assert original
        assert original == (mounted / f"mnt/copy/{partition}/log.json").read_text().replace(
            '"copy"', '"shop"'
        )


@pytest.mark.fuse
def test_replay_a_time_range(mounted):
    """A replay includes records from the first time on, and excludes records from the second time on."""
    (mounted / "mnt/orders").mkdir()
    lines = "".join(f'{{"ts":{stamp},"payload":"at {stamp}"}}\n' for stamp in (1000, 2000, 3000))
    with (mounted / "mnt/orders/0/log.json").open("a") as file:
        file.write(lines)
    assert "at 2000\n" == shell(mounted, "examples/replay-a-time-range.sh orders/0 1970-01-01T00:00:02Z 3000")


@pytest.mark.fuse
def test_follow_with_jq(mounted):
    """jq parses each record that is appended while the script runs."""
    (mounted / "mnt/orders").mkdir()
    with started(
        ["examples/follow-with-jq.sh", "orders/0"], cwd=mounted, stdout=subprocess.PIPE, text=True
    ) as follower:
        seen = None
        while seen is None:
            # jq sees only records appended after it has opened the file, so append until jq prints a record.
            shell(mounted, "printf 'key\\tvalue\\n' >> mnt/orders/0/log.kv; sleep 0.2")
            waiting = (mounted / "mnt/@status").read_text()
            if "waiting_reads 1 " in waiting:
                shell(mounted, "printf 'key\\tlast\\n' >> mnt/orders/0/log.kv")
                seen = follower.stdout.readline()
        assert ["key"] == seen.split("\t")[1:2]
        follower.terminate()


@pytest.mark.fuse
def test_queue_worker(mounted):
    """The record of a failed job is delivered again, and the record of a successful job is not."""
    (mounted / "mnt/jobs").mkdir()
    shell(mounted, "seq 3 >> mnt/jobs/0/log")
    # The second job fails at its first attempt.
    command = ["bash", "-c", 'read job; echo "did $job"; [ "$job" != 2 ] || ! mkdir failed 2>/dev/null']
    with started(
        ["examples/queue-worker.sh", "jobs", "g", *command], cwd=mounted, stdout=subprocess.PIPE, text=True
    ) as worker:
        did = [worker.stdout.readline() for _ in range(4)]
        wait_until(lambda: "lag 0\n" in (mounted / "mnt/@queues/g/status").read_text(), "all jobs are done")
        worker.terminate()
    assert ["did 1\n", "did 2\n", "did 2\n", "did 3\n"] == sorted(did)


@pytest.mark.fuse
@pytest.mark.parametrize("script", ["queue-worker.sh jobs g cat", "nightly-batch.sh jobs g cat"])
def test_a_queue_or_group_that_another_program_makes_at_the_same_moment(mounted, script):
    """A script goes on if another program makes its queue or group just before the script does."""
    (mounted / "mnt/jobs").mkdir()
    shell(mounted, "echo 1 >> mnt/jobs/0/log")
    first = mounted / ".venv/bin/mkdir"
    first.write_text('#!/bin/sh\nfor path; do :; done\n/bin/mkdir "$path"\nexec /bin/mkdir "$@"\n')
    first.chmod(0o755)
    environment = {**os.environ, "PATH": f"{first.parent}:{os.environ['PATH']}"}
    with started(
        ["bash", "-c", f"exec examples/{script}"],
        cwd=mounted,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert "1\n" == program.stdout.readline()
        program.terminate()


@pytest.mark.fuse
def test_queue_service(mounted):
    """The service works through a mount, rejects an invalid record, and reports the rejection in its exit status."""
    (mounted / "mnt/orders").mkdir()
    shell(
        mounted, r"""printf 'anna\t{"amount":2}\nbert\tno job\ncarl\t{"amount":3}\n' >> mnt/orders/log.kv"""
    )
    said = shell(mounted, "examples/queue-service.sh orders --drain 2> errors || [ $? = 3 ]")
    assert ["anna pays 2", "carl pays 3"] == sorted(said.splitlines())
    assert "orders-0-1: exit status 65: rejected" in (mounted / "errors").read_text()
    assert "" == shell(mounted, "examples/queue-service.sh orders --drain")


@pytest.mark.fuse
def test_nightly_batch(mounted):
    """The command gets at most a thousand records at a time; the records of a failed run are delivered again."""
    (mounted / "mnt/orders").mkdir()
    shell(mounted, "seq 2500 > lines; cat lines >> mnt/orders/0/log")
    batch = "examples/nightly-batch.sh orders billing"
    assert "failed\n" == shell(mounted, f"{batch} false || echo failed")
    assert "1 1000\n1001 2000\n2001 2500\n" == shell(
        mounted, f"""{batch} awk 'NR == 1 {{ first = $1 }} END {{ print first, $1 }}'"""
    )
    shell(mounted, "echo last >> mnt/orders/0/log")
    assert "last\n" == shell(mounted, f"{batch} cat")


def test_dead_brokers_disk(checkout):
    """The topics of a broker's directory are shown, checked and taken over; the directory stays unchanged."""
    shell(checkout, f"cp -r {LOG_DIRS} disk && cp -r disk before")
    said = shell(checkout, "examples/dead-brokers-disk.sh disk data --without-settings")
    assert re.search(r"(?m)^g-none-0\tvalue-399-", said)
    assert "" == shell(checkout, "diff -r before disk")
    assert "400\n" == shell(checkout, "topicfs cat g-none/0 | wc -l")


@pytest.mark.parametrize("closed", [True, False], ids=["closed cleanly", "stopped by a crash"])
def test_damage_on_a_dead_brokers_disk(checkout, closed):
    """The script ends at a damaged log, and its commands save the records that a takeover would cut off."""
    shell(checkout, f"cp -r {LOG_DIRS} disk")
    with (checkout / "disk/g-none-0/00000000000000000268.log").open("r+b") as log:
        log.seek(3100)
        log.write(b"X")
    if not closed:
        (checkout / "disk/.kafka_cleanshutdown").unlink()
        (checkout / "disk/recovery-point-offset-checkpoint").unlink()
    said = shell(checkout, "! examples/dead-brokers-disk.sh disk data")
    assert "disk/g-none-0/00000000000000000268.log: position 2971: checksum" in said
    assert " (offsets 293 to 298); reading can go on at 299\n" in said
    assert said.endswith("topicfs takeover --without-settings disk data\n")
    assert not (checkout / "data").exists()
    for command in re.findall(r"(?m)^    (.*)", said):
        shell(checkout, command)
    assert "101\n" == shell(checkout, "wc -l < g-none-0-299.json")
    shell(checkout, "topicfs append --data data g-none/0/log.json g-none-0-299.json")
    assert "394\n" == shell(checkout, "topicfs cat --data data g-none/0 | wc -l")


@pytest.mark.java
def test_mirror_and_query(checkout, tmp_path_factory):
    """A second run of the mirror copies only new records."""
    try:
        java = find_java()
    except UnavailableError as error:
        pytest.skip(f"no Kafka broker: {error}")
    with running_broker(tmp_path_factory.mktemp("kafka") / "node", java) as broker:
        place = f"--data kafka://{broker.bootstrap_server}"
        query = f"examples/mirror-and-query.sh {broker.bootstrap_server} orders 2> errors"
        shell(checkout, f"topicfs topics create {place} orders --partitions 2")
        shell(checkout, rf"printf 'anna\t1\nbert\t2\nanna\t3\n' | topicfs append {place} orders/log.kv")
        assert ["2 anna", "1 bert"] == [
            " ".join(line.split()) for line in shell(checkout, query).splitlines()[1:]
        ]
        shell(checkout, rf"printf 'bert\t4\nbert\t5\n' | topicfs append {place} orders/log.kv")
        assert ["3 bert", "2 anna"] == [
            " ".join(line.split()) for line in shell(checkout, query).splitlines()[1:]
        ]


@pytest.mark.fuse
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_word_count(checkout):
    """Spark's counts equal those of sort and uniq. The query continues where it stopped. In the end no process runs."""
    (checkout / "tmp").mkdir()
    said = shell(checkout, "examples/spark-word-count.sh 3000", TMPDIR=str(checkout / "tmp"))
    assert "1,500" == re.findall(r"batch \d+: ([\d,]+) lines", said)[0]
    counted = int(re.search(r"3000 lines and (\d+) words", said)[1])
    assert counted > 3000
    assert "sort and uniq count the same:\n" in said
    most = [int(line.split()[0]) for line in said.splitlines()[-6:-1]]
    assert sorted(most, reverse=True) == most
    assert '"topic":"words"' in said.splitlines()[-1]
    assert not list((checkout / "tmp").iterdir())


@pytest.mark.fuse
def test_the_first_session_plays_twice_and_stops(checkout):
    """The session mounts, prints the commands' output and stays mounted; a second run continues with its data."""
    try:
        first = shell(checkout, "scripts/first-session.sh")
        second = shell(checkout, "scripts/first-session.sh")
    finally:
        stopped = shell(checkout, "scripts/stop.sh")
    assert "$ mkdir mnt/orders\n" in first
    assert "$ cat mnt/orders/0/log\none apple\ntwo pears\nthree figs\n" in first
    assert "$ mkdir" not in second
    for said in (first, second):
        assert "(exit status" not in said
        assert "&& echo the same\nthe same\n" in said
        assert said.endswith("Stop: make stop\n")
    assert "unmounted ./mnt; the topics are in ./data\n" == stopped
    assert "nothing is mounted at ./mnt\n" == shell(checkout, "scripts/stop.sh")
    assert "no findings" in shell(checkout, "topicfs check data")


def test_the_first_session_without_fuse(checkout):
    """Without FUSE the session says that FUSE is missing, and uses append and cat; a second run works, too."""
    for _ in range(2):
        said = shell(checkout, "scripts/first-session.sh", TOPICFS_FUSE_DEVICE=str(checkout / "absent"))
        assert said.startswith(f"topicfs: {checkout}/absent is missing here, so nothing can be mounted")
        assert "(exit status" not in said
        assert "&& echo the same\nthe same\n" in said
    assert not (checkout / "mnt").exists()
