"""The way of one problem as a page: its explanation, and pictures. One file, nothing else is loaded, no script."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from convloom.artifact import Language
from convloom.compiler import Generated
from convloom.plan.tiled import TiledPlan
from convloom.problem.reference import Problem
from convloom.report.draw_banks import draw_accesses, draw_layouts
from convloom.report.draw_pipeline import draw_pipeline
from convloom.report.draw_roofline import draw_roofline, roofline, roofline_words
from convloom.report.draw_tile import draw_tile
from convloom.report.problem_text import problem_text
from convloom.target.arch import Target

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
       color: #1a202c; background: #ffffff; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid #a0aec0; font-size: 12px; }
figure { margin: 1rem 0; overflow-x: auto; }
figcaption { font-size: 13px; margin-top: .4rem; }
svg { height: auto; font-family: inherit; }
@media (prefers-color-scheme: dark) { body { color: #e2e8f0; background: #171923; } }
"""


def explanation_page(problem: Problem, generated: Generated, target: Target, text: str) -> str:
    """The page; `text` is the explanation in words."""
    title = escape(f"{problem_text(problem)} on {target.name}")
    body = "".join(_sections(problem, generated, target))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{title}</h1>\n<pre>{escape(text)}</pre>\n{body}</body></html>\n"
    )


def _sections(problem: Problem, generated: Generated, target: Target) -> Iterator[str]:
    plan = generated.plan
    if isinstance(plan, TiledPlan):
        yield from _tiled_sections(generated, plan, target)
    if _is_constant(generated):
        found = roofline(problem, generated, target)
        yield _section("Roofline", draw_roofline(found), roofline_words(found))


def _tiled_sections(generated: Generated, plan: TiledPlan, target: Target) -> Iterator[str]:
    """Pictures that only plans of this family have."""
    yield _section("Tile", draw_tile(generated.contraction, plan), "Which threads hold which elements of C.")
    if target.language is Language.C:
        yield "<h2>Shared memory</h2><p>Tiles lie in an array of the stack: a processor has no banks.</p>"
    else:
        yield _section(
            "Shared memory",
            draw_layouts(generated.contraction, plan),
            "Where the numbers of a tile lie, by bank of 4 bytes (32 banks).",
        )
        yield _section(
            "Accesses to shared memory",
            draw_accesses(generated),
            "The bank in which the access of each lane begins: threads 0 to 31 of the first block, first round of each "
            "loop. A wavefront serves every bank once; more wavefronts than needed are a conflict.",
        )
    caption = f"{plan.stages} K tiles of {plan.block_k} in shared memory at a time; not to scale."
    yield _section("Pipeline", draw_pipeline(plan), caption)


def _is_constant(generated: Generated) -> bool:
    return all(axis.extent.is_const for axis in generated.contraction.axes)


def _section(title: str, drawing: str, caption: str) -> str:
    return f"<h2>{escape(title)}</h2>\n<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>\n"
