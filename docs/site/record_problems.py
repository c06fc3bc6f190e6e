"""Record the problems of tests/live/troubles.py, and keep what `fusetools why` prints of each.

As root: PYTHONPATH=tests:tests/live python docs/site/record_problems.py [NAME …]. It writes
docs/site/problems/NAME.txt, and leaves a file as it is if the wrong finding came first.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import campaign
import mounts
import troubles

PROBLEMS = Path(__file__).parent / "problems"


def main() -> int:
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        program = troubles.build(Path(folder))
        known = {**troubles.TROUBLES, **troubles.MINOR}
        for name in sys.argv[1:] or troubles.TROUBLES:
            output = Path(folder) / "perf.data"
            with mounts.alone():
                recording = campaign.record(program, name, output)
            findings = recording.why().findings
            code = known[name][1]
            if not findings or findings[0].reason.code.value != code:
                wrong.append(name)
                continue
            command = [sys.executable, "-m", "fusetools", "why"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
            # Folders of this run do not matter.
            output_text = re.sub(r"/tmp/tmp\w+/0/", "/", done.stdout)
            (PROBLEMS / f"{name}.txt").write_text(f"$ fusetools why\n{output_text}")
    print("not kept: " + ", ".join(wrong) if wrong else "all are kept")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
