"""The picture of a run: well-formed, small, and what it shows is what was seen."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from leasehold.cli.demo.course import Course
from leasehold.operations.picture import LEFT, RIGHT, WIDTH, Mark, Moment, draw
from tests.dashboard.looks import row

SPACE = "{http://www.w3.org/2000/svg}"


def rectangles(svg: str, kind: str) -> list[tuple[float, float]]:
    """From where to where the rectangles of this class go, as parts of the whole time."""
    found = [one for one in ET.fromstring(svg).iter(f"{SPACE}rect") if one.get("class") == kind]  # noqa: S314 -- ours
    whole = WIDTH - LEFT - RIGHT
    places = [(float(one.get("x", 0)), float(one.get("width", 0))) for one in found if one.get("rx") is None]
    return [(round((x - LEFT) / whole, 2), round((x + width - LEFT) / whole, 2)) for x, width in places]


def test_who_owned_what_and_when() -> None:
    owners = ["blue"] * 4 + ["blue"] * 2 + ["green"] * 5
    moments = [
        Moment(float(at), {"0": owner, "1": "green" if at > 1 else ""}, 10 * at, frozenset({"blue"} if at > 3 else ()))
        for at, owner in enumerate(owners)
    ]
    svg = draw("a run", moments, [Mark(3.5, "killed"), Mark(6.0, "taken over")])
    assert rectangles(svg, "o0") == [(0.0, 0.4)]
    assert rectangles(svg, "o0 dead") == [(0.4, 0.6)]
    assert rectangles(svg, "o1") == [(0.6, 1.0), (0.2, 1.0)]
    texts = [one.text for one in ET.fromstring(svg).iter(f"{SPACE}text")]  # noqa: S314 -- ours
    assert {"a run", "killed", "taken over", "partition 0", "10", "10 s"} <= set(texts)


def test_text_of_others_is_no_markup_and_long_runs_stay_small() -> None:
    hostile = "<script>alert(1)</script>\x1b"
    moments = [Moment(at / 4, {str(p): hostile for p in range(8)}, at) for at in range(4_000)]
    svg = draw(hostile, moments, [Mark(1.0, hostile)])
    assert "<script" not in svg
    assert ET.fromstring(svg).tag == f"{SPACE}svg"  # noqa: S314 -- ours
    assert len(svg) < 12_000


def test_the_course_of_a_demo_as_a_picture() -> None:
    course = Course(100)
    for at in range(40):
        if at == 20:
            course.killed = 20.0
        owner = "blue/1" if at < 28 else "green/1"
        done = min(50, 3 * at)
        course.note([row("0", owner, checkpoint=done, end=50), row("1", "green/1", checkpoint=done, end=50)], float(at))
    svg = course.picture()
    assert "green took over, 8.0 s later" in svg
    assert "blue is killed" in svg
    assert [end for _, end in rectangles(svg, "o0 dead")] == [round(28 / 39, 2)]
