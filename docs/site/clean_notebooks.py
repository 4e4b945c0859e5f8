"""Leave in notebooks what their cells return and print, and nothing of the machine that ran them.

    python clean_notebooks.py FILE ...

Standard error goes: progress, and paths of whoever ran it.
"""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        notebook["metadata"] = {"language_info": {"name": "python"}}
        for cell in notebook["cells"]:
            cell["metadata"] = {}
            if cell["cell_type"] == "code":
                cell["outputs"] = [output for output in cell["outputs"] if output.get("name") != "stderr"]
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
