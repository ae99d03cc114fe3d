"""The picture of a terminal on the front page: what `wholegrain demo` really prints.

    python scripts/docs_demo.py           # runs the demo, which takes about half a minute
    python scripts/docs_demo.py FILE      # from what `script -c "wholegrain demo" FILE` has written

It needs `wholegrain[cli,array-record]`.
"""

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURE = Path(__file__).parent.parent / "docs" / "figures" / "demo.svg"
COLUMNS = 78

THEME = TerminalTheme(
    (32, 29, 23),
    (236, 230, 216),
    [
        *((46, 42, 32), (232, 138, 116), (139, 190, 110), (227, 176, 75)),
        *((122, 162, 220), (183, 154, 224), (95, 191, 168), (236, 230, 216)),
    ],
)

# rich's own frame names fonts of another server; this one has the fonts of the machine.
FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" role="img"
  viewBox="0 0 {width} {height}" aria-label="wholegrain demo in a terminal">
  <title>wholegrain demo in a terminal</title>
  <style>
    .{unique_id}-matrix {{
      font: {char_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
      line-height: {line_height}px; font-variant-east-asian: full-width;
    }}
    {styles}
  </style>
  <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
    </clipPath>
    {lines}
  </defs>
  {chrome}
  <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
  </g>
</svg>
"""


def recorded() -> str:
    """Run the demo in a terminal, and return what it sent there."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "demo"
        command = f"stty cols 96 rows 60; {Path(sys.executable).parent}/wholegrain demo"
        subprocess.run(
            ["script", "--quiet", "--return", "--command", command, str(file)],
            env={"TERM": "xterm-256color", "PATH": "/usr/bin:/bin"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return file.read_bytes().decode()


def left_on_screen(sent: str) -> list[str]:
    """Return the lines that a terminal shows in the end: progress bars erase themselves."""
    shown = [""]
    for part in re.split(r"(\n|\r|\x1b\[1A|\x1b\[2K|\x1b\[\?25[hl])", sent):
        if part == "\n":
            shown.append("")
        elif part == "\x1b[1A":
            shown.pop()
        elif part == "\x1b[2K":
            shown[-1] = ""
        elif not part.startswith(("\r", "\x1b[?25")):
            shown[-1] += part
    return [line for line in shown if not line.startswith("Script ")]


def picture(lines: list[str]) -> str:
    """Return the drawing; the report, which other pages show, is left out."""
    texts = [Text.from_ansi(line) for line in lines]
    report = next(i for i, text in enumerate(texts) if "it.report()" in text.plain)
    end = next(i for i, text in enumerate(texts) if "digests are equal" in text.plain)
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="256"
    )
    console.print(Text("$ wholegrain demo", "bold"))
    for text in texts[:report] + texts[end : end + 1]:
        console.print(text, overflow="crop", no_wrap=True)
    drawn = console.export_svg(
        title="wholegrain demo", theme=THEME, code_format=FRAME, unique_id="demo"
    )
    return "\n".join(line.rstrip() for line in drawn.splitlines() if line.strip()) + "\n"


if __name__ == "__main__":
    sent = Path(sys.argv[1]).read_bytes().decode() if len(sys.argv) > 1 else recorded()
    PICTURE.write_text(picture(left_on_screen(sent)))
    print(PICTURE)
