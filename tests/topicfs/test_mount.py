"""Tests of how `topicfs mount` parses its command line; tests/fusefs/mounted tests mounting."""

from __future__ import annotations

from pathlib import Path

import pytest

from topicfs.fusefs import daemon
from topicfs.fusefs.appending.handle import Acks
from topicfs.fusefs.daemon import MountOptions
from topicfs.fusefs.mounting.daemon_log import LogFormat
from topicfs.fusefs.nodes.ownership import Ownership
from topicfs.listener.address import Endpoint
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.model import Isolation


@pytest.fixture
def asked(monkeypatch) -> list[MountOptions]:
    """The list of options that the daemon gets. The daemon is replaced by a function that only returns success."""
    options: list[MountOptions] = []

    def run(asked_for: MountOptions) -> int:
        options.append(asked_for)
        return 0

    monkeypatch.setattr(daemon, "run", run)
    return options


def test_without_options_the_daemons_own_defaults_hold(topicfs, asked):
    """Without options the daemon gets the defaults of MountOptions."""
    assert 0 == topicfs("mount", "data", "mnt").status
    assert [MountOptions(directories=(Path("data"),), mountpoint=Path("mnt"))] == asked


def test_a_setting_without_effect_is_reported_with_the_reason(topicfs, asked, tmp_path):
    """`replica.lag.time.max.ms`, which has no effect in topicfs, is reported with the reason."""
    config = tmp_path / "server.properties"
    config.write_text("replica.lag.time.max.ms=5000\nlisteners=PLAINTEXT://:9092\n")
    ran = topicfs("mount", "--config", str(config), "data", "mnt")
    assert (
        "settings without effect here: replica.lag.time.max.ms (a hanging disk is waited for; a failed one is dropped "
        "immediately), listeners\n"
    ) in ran.errors.decode()
    assert 1 == len(asked)


def test_every_option_is_passed_to_the_daemon(topicfs, asked, tmp_path):
    """Each option reaches the daemon as a field of MountOptions."""
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=3\nlisteners=PLAINTEXT://:9092\n")
    words = (
        "--foreground --read-only --allow-other --allow-delete --acks -1 --linger-ms 7 --partitioner roundrobin "
        "--uid 1234 --gid 56 --umask 027 --max-waiting 8 --log-format json "
        f"--nonempty --isolation read_uncommitted --metrics :9464 --log-file log --debug --config {config} data mnt"
    )
    ran = topicfs("mount", *words.split())
    assert (0, f"topicfs: {config}: settings without effect here: listeners\n".encode()) == ran[::2]
    expected = MountOptions(
        directories=(Path("data"),),
        mountpoint=Path("mnt"),
        foreground=True,
        nonempty=True,
        read_only=True,
        allow_other=True,
        owner=Ownership(1234, 56, 0o027),
        allow_delete=True,
        acks=Acks.ALL,
        linger_ms=7,
        partitioner="roundrobin",
        isolation=Isolation.READ_UNCOMMITTED,
        max_waiting=8,
        metrics=Endpoint("127.0.0.1", 9464),
        log_file=Path("log"),
        log_format=LogFormat.JSON,
        debug=True,
        engine=EngineConfig.from_properties({"num.partitions": "3"}).config,
    )
    assert [expected] == asked


def test_accounts_are_named_as_well_as_numbered(topicfs, asked):
    """The options --uid and --gid accept names and numbers.

    The defaults are the user and the group of the process.
    """
    assert 0 == topicfs("mount", "--uid", "root", "--gid", "root", "data", "mnt").status
    assert 0 == topicfs("mount", "--umask", "2", "data", "mnt").status
    own = Ownership.of_process()
    assert [Ownership(0, 0), Ownership(own.uid, own.gid, 0o002)] == [options.owner for options in asked]


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--gid", "no-such-group", "no such group on this machine; give another name, or a number"),
        ("--uid", "4294967295", "a user ID is at most 4294967294"),
        ("--uid", "-1", "no such user on this machine"),
        ("--umask", "1000", "not a umask in octal digits"),
        ("--umask", "-2", "not a umask in octal digits"),
        ("--max-waiting", "0", "0 is not in the range"),
        ("--log-format", "xml", "is not one of"),
    ],
)
def test_an_invalid_account_mask_or_format_is_a_usage_error(topicfs, asked, option, value, reason):
    """An invalid account, mask or format is a usage error that names the value, and nothing is mounted."""
    ran = topicfs("mount", option, value, "data", "mnt")
    assert (2, []) == (ran.status, asked)
    assert reason in " ".join(ran.errors.decode().replace("│", " ").split())


def test_settings_are_read_again_from_the_same_file(topicfs, asked, monkeypatch, tmp_path):
    """A reload reads the same file as the start, even if the working directory has changed, and keeps --replicas."""
    Path("server.properties").write_text("num.partitions=3\n")
    assert 0 == topicfs("mount", "--config", "server.properties", "--replicas", "2", "a,b", "mnt").status
    Path("server.properties").write_text("num.partitions=4\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (options,) = asked
    assert options.rereads is not None
    found = options.rereads()
    assert (4, 2) == (found.num_partitions, found.replication_factor)


def test_without_a_config_nothing_is_read_again(topicfs, asked):
    """Without --config there is nothing to reload."""
    assert 0 == topicfs("mount", "data", "mnt").status
    assert asked[0].rereads is None


def test_several_directories(topicfs, asked):
    """Directories are separated by commas, unless a directory of the whole name exists."""
    Path("a,b").mkdir()
    assert [0, 0] == [topicfs("mount", given, "mnt").status for given in ("/one,two", "a,b")]
    assert [(Path("/one"), Path("two")), (Path("a,b"),)] == [options.directories for options in asked]


@pytest.mark.parametrize("lines", ["log.dirs=/one, two\nlog.dir=/three", "log.dir=/one,two"])
def test_directories_of_the_file(topicfs, asked, lines):
    """Directories on the command line take precedence over log.dirs of the file, and log.dirs over log.dir."""
    Path("server.properties").write_text(lines)
    for places in (["mnt"], ["data", "mnt"]):
        assert (0, b"") == topicfs("mount", "--config", "server.properties", *places)[::2]
    assert [(Path("/one"), Path("two")), (Path("data"),)] == [options.directories for options in asked]


def test_more_than_two_places_are_a_usage_error(topicfs, asked):
    """More than two arguments, a directory and a mountpoint, are a usage error."""
    ran = topicfs("mount", "a", "b", "mnt")
    assert (2, 1, []) == (ran.status, len(ran.errors.splitlines()), asked)


def test_what_the_daemon_answers_is_the_exit_status(topicfs, monkeypatch):
    """The command returns the daemon's exit status."""
    monkeypatch.setattr(daemon, "run", lambda _: 1)
    assert 1 == topicfs("mount", "data", "mnt").status


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("mount", "a:1,b:2", "mnt"), "a:1,b:2: is a broker's address"),
        (("topics", "create", "t", "--data", "localhost:9092"), "localhost:9092: is a broker's address"),
        (("mount", "mnt", "kafka://one:9092"), "put the cluster first: topicfs mount kafka://one:9092 mnt"),
    ],
)
def test_a_broker_in_the_wrong_place_is_a_misuse(topicfs, asked, words, reason):
    """A broker's address in the place of a directory is a usage error, and no directory is created."""
    ran = topicfs(*words)
    assert (2, 1, []) == (ran.status, len(ran.errors.splitlines()), asked)
    assert reason in ran.errors.decode()
    assert [] == list(Path().iterdir())


def test_a_directory_may_be_named_as_a_broker(topicfs, asked):
    """A directory whose name looks like a broker's address is accepted if it exists or is written with a slash."""
    Path("host:1").mkdir()
    assert [0, 0] == [topicfs("mount", name, "mnt").status for name in ("host:1", "./new:2")]
    assert [(Path("host:1"),), (Path("new:2"),)] == [options.directories for options in asked]


@pytest.mark.parametrize("address", ["", "host", "1:2:3", "65536"])
def test_an_invalid_address_is_a_usage_error(topicfs, asked, address):
    """An invalid --metrics address is a usage error."""
    ran = topicfs("mount", "--metrics", address, "data", "mnt")
    assert (2, 1, []) == (ran.status, len(ran.errors.splitlines()), asked)
    assert f"{address}: not an address to listen at" in ran.errors.decode()
