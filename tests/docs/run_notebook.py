"""Run the code cells of a notebook one after another, as a kernel would: python run_notebook.py FILE."""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    notebook = Path(sys.argv[0])
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
