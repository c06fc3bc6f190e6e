from pathlib import Path

from fusetools.man import reference

path = Path(__file__).parents[2] / "docs" / "commands.md"
path.parent.mkdir(exist_ok=True)
path.write_text(reference(), encoding="utf-8")
