"""The process of an inference engine: statements as lines of JSON in, statements out. The last line says that all is
done, or what failed.

    python -m mdv.engines.engine_process NAME SECONDS STATEMENTS
"""

from __future__ import annotations

import json
import resource
import sys
from itertools import islice
from typing import TextIO

from mdv.engines.registry import load_engine
from mdv.rdf.term_json import read_term, write_statement

MAX_MEMORY_BYTES = 2 << 30


def main(name: str, seconds: float, most: int, given: TextIO, answer: TextIO) -> None:
    """Run an engine. `most`: statements that it may infer; one more is written, so that the caller sees it."""
    from mdv.model import Statement

    try:
        engine = load_engine(name)
        statements = [Statement(subject, prop, read_term(term)) for subject, prop, term in map(json.loads, given)]
        known, written = set(statements), 0
        new = (one for one in engine(statements) if one not in known)
        for one in islice(new, most + 1):
            print(json.dumps(write_statement(one), ensure_ascii=False), file=answer)
            written += 1
        end: dict[str, object] = {"done": written}
    except MemoryError:
        end = {"error": "it needs too much memory"}
    except ImportError as error:
        end = {"error": f"it is not installed ({error})"}
    except Exception as error:  # of the code of an engine
        end = {"error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(end), file=answer)


if __name__ == "__main__":
    _, engine_name, time_limit, limit = sys.argv
    cpu = int(float(time_limit)) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    main(engine_name, float(time_limit), int(limit), sys.stdin, sys.stdout)
