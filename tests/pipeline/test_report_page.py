"""Tests of a report's page: complete, readable for one topic and for fifty, and equal for equal numbers."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from topicfs.storage.model import TopicPartition

np = pytest.importorskip("numpy")
pytest.importorskip("matplotlib")

from topicfs.pipeline.report.numbers import GroupLag, PartitionNumbers, StoredBytes
from topicfs.pipeline.report.page.formatting import duration, each, moment, short, size
from topicfs.pipeline.report.page.page import page
from topicfs.pipeline.report.page.selection import MAX_TIME, choose, series_of, time_axis

pytestmark = pytest.mark.slow

NEW_YEAR = 1_767_225_600_000
HOUR, DAY = 3_600_000, 86_400_000


def integers(*values):
    return np.array(values, np.int64)


def numbers_of(
    topic, partition=0, *, times=(NEW_YEAR, NEW_YEAR + HOUR), log_bytes=1000, codec="zstd", stamped=False
):
    """Return the numbers of a partition with a record at each of `times`."""
    numbers = PartitionNumbers(
        TopicPartition(topic, partition), segments=1, log_bytes=log_bytes, records=len(times)
    )
    sizes = np.full(len(times), 100, np.int64)
    numbers.count_times(integers(*times), sizes)
    numbers.count_sizes(sizes // 10, sizes)
    numbers.store(codec, StoredBytes(log_bytes, 3 * log_bytes))
    if stamped:
        numbers.stamped_records = len(times)
        numbers.count_lags(sizes)
    else:
        numbers.segment_lags = [DAY - HOUR]
    return numbers


def heading(**changes):
    return {"place": "/srv/topics", "now_ms": NEW_YEAR, "top": 12, **changes}


class Elements(HTMLParser):
    """Parses a page as browsers do, and checks that opening and closing tags match."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.texts = [], [], []
        self.feed(text)
        assert [] == self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert tag == self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] not in {"style", "text"}:
            self.texts.append(" ".join(data.split()))

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def fifty():
    """Return fifty topics of eight partitions, of which the first is the largest, and their page."""
    numbers = [
        numbers_of(f"topic-{topic:02}", partition, log_bytes=1000 - topic, stamped=topic == 3)
        for topic in range(50)
        for partition in range(8)
    ]
    return page(numbers, **heading())


def test_a_page_needs_nothing_else(fifty):
    """The page refers to no external address, has no script, and defines every id to which it refers."""
    elements = Elements(fifty)
    assert [] == elements.all("script") + elements.all("link") + elements.all("img")
    addresses = re.findall(r'(?:href|src|url)\s*[=(]\s*["\']?([^"\')\s>]+)', fifty)
    assert {"#"} == {address[0] for address in addresses}
    names = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(set(names)) == len(names)
    assert {address[1:] for address in addresses} <= set(names)
    colors = set(re.findall(r"#[0-9a-f]{6}\b", fifty.partition("</style>")[2]))
    assert set() == colors


def test_of_many_topics_the_largest_are_drawn_and_the_page_says_so(fifty):
    """If there are many topics, each of the twelve largest has a panel, and one panel has the sum of the others.

    The page says so, and tables list all topics.
    """
    elements = Elements(fifty)
    text = " ".join(elements.texts)
    assert "Plots show the 12 topics with the most bytes on disk, and the other 38 as one" in text
    labels = [svg["aria-label"] for svg in elements.all("svg")]
    drawn = [label for label in labels if label.startswith("Records over time of ")]
    assert [f"Records over time of topic-{number:02}" for number in range(12)] == [
        label.partition(":")[0] for label in drawn[:12]
    ]
    assert "Records over time of 38 other topics: 608 in all" in drawn[12]
    assert 13 == len(drawn)
    assert "topic-49" in text
    assert 8 == sum(text.count(f"partition {number}") for number in range(8)) / 2


def test_every_drawing_is_told_in_words(fifty):
    """Every drawing has a role, a label and its numbers as text, for readers who cannot see the drawing."""
    elements = Elements(fifty)
    for svg in elements.all("svg"):
        assert "img" == svg["role"]
        assert re.search(r"\d", svg["aria-label"])
    assert [{"lang": "en"}] == elements.all("html")
    assert "Topics of /srv/topics" in elements.texts
    assert "Exact, record by record: LogAppendTime" in elements.texts
    assert "Roughly, segment by segment: CreateTime" in elements.texts


def test_one_topic_of_one_partition_gets_the_whole_width():
    """A single topic of one partition has one wide panel per section, without a legend or a sum."""
    elements = Elements(page([numbers_of("only")], **heading()))
    assert 4 == len([one for one in elements.all("svg") if one["class"] == "broad"])
    assert "All" not in elements.texts
    assert not any(text.startswith("partition 0") for text in elements.texts)


def test_the_same_numbers_make_the_same_page():
    """Equal numbers in any order give the same page, which shows its time of creation only if a time is passed."""
    numbers = [numbers_of("b"), numbers_of("a", 1), numbers_of("a", 0)]
    one = page(numbers, **heading())
    assert one == page(numbers[::-1], **heading())
    assert "As of 2026-01-01 00:00. " in one
    assert "As of" not in page(numbers, **heading(now_ms=None))


def test_nothing_is_a_page_too():
    """A page is made if there are no topics, if a topic has no records, and if records have no times."""
    assert "No record here has a time." in page([], **heading())
    Elements(page([], **heading()))
    Elements(page([PartitionNumbers(TopicPartition("empty", 0))], **heading()))
    untimed = page([numbers_of("untimed", times=(-1, -1))], **heading())
    assert "No record here has a time." in untimed
    assert "Sizes of keys and values of untimed" in untimed


def test_a_cluster_shows_all_but_its_segments():
    """A cluster's page shows the bytes and compression of batches, but no segments."""
    numbers = numbers_of("orders")
    numbers.segments, numbers.segment_lags = 0, []
    text = " ".join(Elements(page([numbers], **heading())).texts)
    assert "Clients of a cluster cannot see its segments" in text
    assert "On disk" in text
    assert "Compression" in text
    assert "Segments" not in text
    assert "Lag" not in text


def test_a_narrow_screen_has_drawings_of_its_own(fifty):
    """Each wide drawing has a second, narrow form, and each cell has its column's title, for narrow screens."""
    elements = Elements(page([numbers_of("only")], **heading()))
    svgs = elements.all("svg")
    broad, narrow = ([one for one in svgs if one.get("class") == name] for name in ("broad", "narrow"))
    assert svgs == [one for pair in zip(broad, narrow, strict=True) for one in pair]
    assert [one["aria-label"] for one in broad] == [one["aria-label"] for one in narrow]
    small = [one for one in Elements(fifty).all("svg") if "class" not in one]
    assert {one["viewbox"].split()[2] for one in small} == {one["viewbox"].split()[2] for one in narrow}
    heads = [text for text in elements.texts if text in {"Records", "On disk", "Codec", "First"}]
    cells = [one["data-head"] for one in elements.all("td")]
    assert set(heads) <= set(cells)


def test_groups_are_a_table_of_lags():
    """The table of groups has a row per group and topic, sorted by name, with the lag over all partitions."""
    numbers = [
        PartitionNumbers(TopicPartition("orders", number), groups=groups)
        for number, groups in enumerate(
            [(GroupLag("<b>", 3, 4), GroupLag("archive", 7, 0)), (GroupLag("<b>", 1, 1_000),)]
        )
    ]
    shown = page(numbers, **heading())
    Elements(shown)
    table = shown[shown.index('<h2 id="groups">') :]
    cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", table[: table.index("</table>")])
    assert ["Group", "Topic", "Partitions", "Lag"] == cells[:4]
    assert ["&lt;b&gt;", "orders", "2", "1,004", "archive", "orders", "1", "0"] == cells[4:]
    assert 'id="groups"' not in page([PartitionNumbers(TopicPartition("orders", 0))], **heading())


def test_damage_is_reported_at_the_top():
    """Damage is reported at the top of the page, and names are escaped."""
    numbers = numbers_of("orders")
    numbers.damaged_batches, numbers.changed_segments = 1, 2
    text = page([numbers], **heading(place="/srv/<b>&"))
    Elements(text)
    assert "<strong>1 damaged batch</strong>" in text
    assert "<strong>2 segments</strong>" in text
    assert "Topics of /srv/&lt;b&gt;&amp;" in text


def test_a_single_further_topic_is_shown():
    """One more topic than requested is shown, because a panel "others" would take as much space."""
    numbers = [numbers_of(name, log_bytes=log_bytes) for name, log_bytes in (("a", 1), ("b", 3), ("c", 2))]
    assert (["b", "c", "a"], []) == tuple(
        [topic.name for topic in topics] for topics in choose(numbers, top=2)
    )
    assert (["b"], ["c", "a"]) == tuple([topic.name for topic in topics] for topics in choose(numbers, top=1))


def test_of_many_partitions_the_largest_have_shades_of_their_own():
    """If there are many partitions, each of the seven largest has its own shade, and all others share one shade."""
    topic = choose([numbers_of("t", number, log_bytes=100 + number) for number in range(20)], top=1).shown[0]
    series = series_of(topic)
    assert [*(f"partition {number}" for number in range(13, 20)), "13 others"] == [
        one.label for one in series
    ]
    assert topic.total.records == sum(one.numbers.records for one in series)


def test_a_few_stray_times_do_not_flatten_a_plot():
    """A record of 1971 among ten thousand, and one of an impossible year, are counted but left out of the plot."""
    times = [NEW_YEAR + at * 1000 for at in range(10_000)]
    topics = choose([numbers_of("t", times=[*times, 365 * DAY, MAX_TIME + 5])], top=1).shown
    axis = time_axis(topics)
    assert (True, 2) == (axis.start_ms <= NEW_YEAR < axis.start_ms + axis.width_ms, axis.left_out)
    assert axis.end_ms - axis.start_ms < 2 * 10_000_000 + axis.width_ms
    sparse = choose([numbers_of("t", times=[0, 365 * DAY])], top=1).shown
    assert (0, 0) == (time_axis(sparse).start_ms, time_axis(sparse).left_out)
    assert None is time_axis(choose([numbers_of("t", times=[MAX_TIME])], top=1).shown)


def test_a_moment_is_drawn_as_one():
    """Records within one millisecond are drawn as a bar of one second in the middle of the time axis."""
    topics = choose([numbers_of("t", times=[NEW_YEAR, NEW_YEAR])], top=1).shown
    axis = time_axis(topics)
    amounts = [amount.records for amount in axis.amounts(topics[0].total.times)]
    assert (1000, 2, 2) == (axis.width_ms, sum(amounts), max(amounts))
    assert 28 <= len(amounts) <= 32
    assert abs(amounts.index(2) - len(amounts) / 2) <= 2


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("0", short(0)),
        ("999", short(999)),
        ("1 k", short(1000)),
        ("1 M", short(999_999)),
        ("12 M", short(12_345_678)),
        ("0.5", short(0.5)),
        ("1.5 kB", size(1500)),
        ("0 ms", duration(0)),
        ("-5 ms", duration(-5)),
        ("1.5 h", duration(5_400_000)),
        ("hour", each(HOUR)),
        ("6 hours", each(6 * HOUR)),
        ("100 days", each(100 * DAY)),
        ("2026-01-01 00:00", moment(NEW_YEAR)),
        ("none", moment(None)),
        (f"{2**62} ms", moment(2**62)),
    ],
)
def test_numbers_are_formatted_briefly(expected, actual):
    """Numbers are formatted briefly, as a person would say them."""
    assert expected == actual


HOSTILE = (
    '</svg></title><script src=//evil></script>\'" onload=alert(1) x="<img src=x onerror=alert(1)>&#60;b&#62;'
)


def test_no_name_makes_an_element():
    """Names of topics, groups and places are shown as text, never as HTML, because anybody may have chosen them."""
    usual_numbers = [numbers_of("orders", stamped=True), numbers_of("clicks")]
    usual_numbers[0].groups = (GroupLag("billing", 1, 1),)
    plain = page(usual_numbers, **heading())
    numbers = [numbers_of(HOSTILE, stamped=True), numbers_of(f"{HOSTILE}2")]
    numbers[0].groups = (GroupLag(HOSTILE, 1, 1),)
    shown = page(numbers, **heading(place=HOSTILE))
    attacked, usual = Elements(shown), Elements(plain)
    assert {tag for tag, _ in usual.found} >= {tag for tag, _ in attacked.found}
    attributes = {name for _, given in usual.found for name in given}
    assert attributes >= {name for _, given in attacked.found for name in given}
    assert " ".join(f"Topics of {HOSTILE}".split()) in attacked.texts
