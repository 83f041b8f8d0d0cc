"""As killing.py, but the children read chunks behind neighbours: `HOME MODEL EMBEDDING [DOCUMENT]`.

With a document, that one is removed in the place of it.
"""

import sys
from pathlib import Path

from appliance.service import Appliance
from tests.appliance.neighbourhood import neighbouring
from tests.faults.killing import serve
from tests.faults.reencoding_program import settings_of


def read_behind_neighbours() -> None:
    """In the place of the command line's `main`."""
    home, model, embedding, *document = sys.argv[1:]
    with Appliance.open(settings_of(Path(home), Path(model), Path(embedding))) as opened:
        if document:
            opened.remove(opened.find_document(document[0]))
            sys.exit(0)
        work = neighbouring(opened).run()
    sys.exit(work.error)


if __name__ == "__main__":
    serve(read_behind_neighbours)
