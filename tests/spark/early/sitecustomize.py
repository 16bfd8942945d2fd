"""Python runs this before anything else, where the tests put this folder into its path: what Spark starts begins with serai loaded.

    pyspark.daemon      Spark forks a process from it for each question to a data source: it imports the source for all of them
    the source runner   Spark starts a Python for each streaming source of a query: that one only stands in for a process that
                        `warm.py` forks, with the same environment and the same standard streams, and ends when it ends

Both would import the same modules each time: 0.2 to 1 second of processor, hundreds of times in a run of the suite.
"""

import os
import sys

if "pyspark.daemon" in sys.orig_argv:
    import serai.spark.source  # noqa: F401 - for those who are forked
elif "pyspark.sql.streaming.python_streaming_source_runner" in sys.orig_argv and "SERAI_TEST_WARM" in os.environ:
    import warm  # type: ignore[import-not-found]  # it lies beside this file, whose folder is in the path

    warm.stand_in(os.environ["SERAI_TEST_WARM"])
