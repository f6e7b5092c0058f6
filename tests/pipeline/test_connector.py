"""Tests of Spark's Kafka connector: its jars are fetched completely or not at all, and sessions get settings for it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from topicfs import pipeline
from topicfs.pipeline import connector as maven
from topicfs.pipeline.connector import CONNECTOR, JARS, PACKAGES, Jars, JarsMissingError, settings_of_session
from topicfs.pipeline.errors import PipelineError

ABOVE = "spark-sql-kafka-0-10_2.13-9.jar"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Give the test its own cache and PATH."""
    monkeypatch.setattr(maven, "user_cache_path", lambda _: tmp_path / "cache")
    monkeypatch.delenv(CONNECTOR.variable, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path / "cache"


def install_maven(tmp_path, script):
    """Install a program named mvn that runs `script`. The script fills the folder `$output`."""
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\noutput=${{7#-DoutputDirectory=}}\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_jars_are_fetched_once_and_said_once(tmp_path, cache):
    """The first call fetches the jars and prints one message. The second call neither fetches nor prints."""
    install_maven(tmp_path, f'echo once >>{tmp_path}/runs; mkdir "$output"; touch "$output/{ABOVE}"')
    said = []
    first = CONNECTOR.folder(say=said.append)
    assert [ABOVE] == [path.name for path in first.iterdir()]
    assert first == CONNECTOR.folder(say=said.append)
    assert "once\n" == (tmp_path / "runs").read_text()
    assert [f"fetching the jars of spark-kafka into {first} (once; a minute at most)"] == said
    assert [first] == list(cache.iterdir())


def test_another_pom_is_another_folder(tmp_path, cache):
    """Each version of the pom has its own folder, so an older topicfs still finds its jars."""
    install_maven(tmp_path, f'mkdir "$output"; touch "$output/{ABOVE}"')
    (tmp_path / "pom.xml").write_text("<project/>")
    other = Jars(name="spark-kafka", pom=tmp_path / "pom.xml", variable="NONE", first="*.jar")
    assert other.folder(say=str) != CONNECTOR.folder(say=str)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            'mkdir "$output"; touch "$output/half.jar"; echo "[ERROR] no route"; exit 1',
            "jars of spark-kafka: no route",
        ),
        ("echo gone wrong >&2; exit 1", "jars of spark-kafka: gone wrong; fix this"),
        (
            r"""printf '\033[0m\033[0m[ERROR] no plugin\n[ERROR] \n[ERROR] see the help\n'; exit 1""",
            "jars of spark-kafka: no plugin; fix this",
        ),
        ("exit 1", "it printed nothing"),
        ('mkdir "$output"; touch "$output/other.jar"', "could not fetch the jars"),
    ],
)
def test_a_fetch_that_fails_leaves_nothing(tmp_path, cache, script, said):
    """The error of a failed fetch has Maven's reason and the remedy, and no incomplete folder is left."""
    install_maven(tmp_path, script)
    with pytest.raises(JarsMissingError, match=said) as caught:
        CONNECTOR.folder(say=str)
    assert CONNECTOR.variable in str(caught.value)
    assert [] == list(cache.iterdir())


def test_a_fetch_that_takes_too_long_is_given_up(tmp_path, cache, monkeypatch):
    """A fetch that takes too long fails, so that the command does not seem to hang."""
    install_maven(tmp_path, "exec sleep 60")
    monkeypatch.setattr(maven, "DOWNLOAD_TIMEOUT_SECONDS", 0.2)
    with pytest.raises(JarsMissingError, match="did not fetch the jars of spark-kafka in 0.2 s"):
        CONNECTOR.folder(say=str)


def test_without_maven_the_remedies_are_named(tmp_path, cache, monkeypatch):
    """Without Maven the error names both remedies: install Maven, or name a folder with the jars."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JarsMissingError, match=r"install Maven, or .* in TOPICFS_SPARK_KAFKA_JARS"):
        CONNECTOR.folder(say=str)


def test_a_folder_that_has_them_is_taken(tmp_path, cache, monkeypatch):
    """The jars in the folder TOPICFS_SPARK_KAFKA_JARS are used without a fetch; a folder without them is refused."""
    monkeypatch.setenv(CONNECTOR.variable, str(tmp_path))
    with pytest.raises(JarsMissingError, match=r"this folder has no spark-sql-kafka-0-10_\*.jar"):
        CONNECTOR.folder(say=str)
    (tmp_path / ABOVE).touch()
    (tmp_path / "kafka-clients-9.jar").touch()
    assert tmp_path == CONNECTOR.folder(say=str)
    assert f"{tmp_path}/kafka-clients-9.jar,{tmp_path}/{ABOVE}" == pipeline.kafka_jars()


class Home:
    """A SPARK_HOME."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for part in ("conf", "jars", "fetched"):
            (folder / part).mkdir(parents=True)
        (folder / "fetched" / ABOVE).touch()
        self.fetched = f"{folder}/fetched/{ABOVE}"
        self.asked = 0

    def jars(self) -> Path:
        self.asked += 1
        return self.folder / "fetched"

    def settings(
        self, defaults: str = "", given: dict[str, str] | None = None, **environment: str
    ) -> dict[str, str]:
        (self.folder / "conf" / "spark-defaults.conf").write_text(defaults)
        return settings_of_session(self.folder, self.jars, given or {}, environment)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def test_a_session_is_given_the_jars(home):
    """A session gets the connector's jars, in addition to those that the user names."""
    assert {JARS: home.fetched} == home.settings()
    assert {JARS: f"/a.jar,{home.fetched}"} == home.settings("spark.jars /a.jar\n# spark.jars.packages x\n")
    assert {JARS: home.fetched} == home.settings(
        PYSPARK_SUBMIT_ARGS="--conf spark.ui.enabled=false pyspark-shell"
    )


@pytest.mark.parametrize(
    ("defaults", "arguments"),
    [
        (f"{PACKAGES} org.apache.spark:spark-sql-kafka-0-10_2.13:4.9.9", ""),
        (f"{JARS}=/else/where/{ABOVE}", ""),
        ("", "--packages org.example:own:1 pyspark-shell"),
        ("", "--packages=org.example:own:1 pyspark-shell"),
        ("", f"--conf {PACKAGES}=org.example:own:1 pyspark-shell"),
        ("", f"--jars /a.jar,hdfs://x/{ABOVE} pyspark-shell"),
        (f"{JARS}=/a.jar", f"-c {JARS}=/else/{ABOVE} pyspark-shell"),
    ],
)
def test_what_the_user_settled_wins(home, defaults, arguments):
    """If the user's settings already name a connector or packages, nothing is set or fetched."""
    assert ({}, 0) == (home.settings(defaults, PYSPARK_SUBMIT_ARGS=arguments), home.asked)


def test_what_is_given_to_the_session_wins_over_the_defaults(home):
    """A session's own settings override spark-defaults.conf, as everywhere in Spark."""
    assert {} == home.settings(given={PACKAGES: "a:b:c"})
    assert {JARS: f"/b.jar,{home.fetched}"} == home.settings(f"{JARS} /a.jar", {JARS: "/b.jar"})


def test_a_connector_among_sparks_own_jars_is_enough(home):
    """If an administrator has put a connector among Spark's own jars, nothing is set."""
    (home.folder / "jars" / ABOVE).touch()
    assert ({}, 0) == (home.settings(), home.asked)


def test_settings_that_cannot_be_joined_are_reported(home):
    """PYSPARK_SUBMIT_ARGS is refused if it names jars but no connector, or if a shell cannot parse it."""
    with pytest.raises(PipelineError, match=f"add its jars there: {home.fetched}"):
        home.settings(PYSPARK_SUBMIT_ARGS="--jars /a.jar pyspark-shell")
    with pytest.raises(PipelineError, match="PYSPARK_SUBMIT_ARGS: No closing quotation"):
        home.settings(PYSPARK_SUBMIT_ARGS="--name 'x")
    with pytest.raises(PipelineError, match="spark-defaults.conf: "):
        home.settings("spark.jars \\uzzzz")


def test_defaults_may_stand_elsewhere(home, tmp_path):
    """SPARK_CONF_DIR names the folder of spark-defaults.conf."""
    (tmp_path / "spark-defaults.conf").write_text(f"{PACKAGES}=a:b:c")
    assert {} == home.settings(SPARK_CONF_DIR=str(tmp_path))
    assert {JARS: home.fetched} == home.settings(SPARK_CONF_DIR=str(tmp_path / "none"))
