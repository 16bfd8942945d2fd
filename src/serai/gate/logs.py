"""What a running server says of itself: sentences on a terminal, JSON lines into anything else.

Neither bodies of messages nor secrets are ever logged; the places that log say who, what and why.
"""

from __future__ import annotations

import json
import logging
import logging.config
import sys
import time
from pathlib import Path

from serai.errors import Misuse


class JsonLines(logging.Formatter):
    """One object on a line: time, level, logger, text, and where an exception came from."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        said = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def set_up(*, file: str, level: str) -> None:
    """Logging as a file says (TOML or JSON, as `logging.config.dictConfig` wants it), else to stderr."""
    if file:
        _from_file(file)
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(message)s") if sys.stderr.isatty() else JsonLines()
    )
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _from_file(file: str) -> None:
    import tomllib

    try:
        text = Path(file).read_text(encoding="utf-8")
        logging.config.dictConfig(json.loads(text) if file.endswith(".json") else tomllib.loads(text))
    except OSError as error:
        raise Misuse(f"the log configuration {file} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        raise Misuse(f"the log configuration {file} is not what the logging module takes: {error}") from error
