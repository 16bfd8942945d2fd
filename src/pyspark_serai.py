"""Makes `format("serai")` known to Spark, which imports every module whose name starts with `pyspark_`.

Each lookup of any Python data source pays for this import, and an error here would break all of them; so the
source is imported only if its parts are there.
"""

from contextlib import suppress

with suppress(ImportError):  # serai without its `spark` extra beside a Spark of somebody else's
    from serai.spark.source import SeraiSource as DefaultSource

__all__ = ["DefaultSource"]
