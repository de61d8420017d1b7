"""The few shapes that pictures are made of, as SVG text. Lengths in pixels; colours follow the page, light or dark."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

INK = "currentColor"


def picture(width: float, height: float, shapes: Iterable[str], title: str) -> str:
    """A whole drawing that shrinks with the page."""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(shapes)}</svg>'
    )


def box(x: float, y: float, width: float, height: float, fill: str, *, note: str = "", stroke: str = "none") -> str:
    """A rectangle; `note` shows under the pointer."""
    inner = f"<title>{escape(note)}</title>" if note else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{fill}" stroke="{stroke}">{inner}</rect>'


def words(x: float, y: float, text: str, *, size: float = 12, anchor: str = "start", fill: str = INK) -> str:
    """A line of text; y is its base line."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
    )


def stroke(points: Iterable[tuple[float, float]], *, width: float = 1.5, dashed: bool = False) -> str:
    """A line through points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="{width}"{dashes}/>'


def colour(number: int, count: int) -> str:
    """One of `count` colours around the circle, readable under black text."""
    return f"hsl({360 * (number % max(count, 1)) / max(count, 1):.0f} 65% 68%)"
