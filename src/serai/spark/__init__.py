"""serai on Spark: a data source, a sink, and the pipelines that run on them.

    spark.read.format("serai").option("logDir", "queue").load()

needs no registration: Spark itself finds `pyspark_serai`, which names `source.SeraiSource`.

    source     what Spark calls: planning on the driver, reading in tasks
    options    every option's name, kind and default; offsets: the JSON in a checkpoint, and where to start
    planning   how much one batch takes and how it is cut into tasks; plain arithmetic
    slices     the seam to the log: what a partition must be able to say.  queues and partitions fill it
    columns    blocks of a log as Arrow batches of the schema; decode: bodies as text, JSON, XML, typed fields
    sink       batches into a log, each once
    session, java   a local Spark with the settings that suit it, and a Java for it

The only room that imports pyspark and pyarrow, and nobody below it imports this one.
"""


def count(**options: object) -> int:
    """How many rows `spark.read.format("serai").options(...)` would give, from the index alone.

    Spark's own `count()` makes every row; the option `columns=offset` makes those cheap.  Rows that cannot be read are
    counted here: nobody looked at them.
    """
    from serai.spark.source import Batch, SeraiSource

    source = SeraiSource({name: str(value) for name, value in options.items()})
    return Batch(source.asked, source.shape()).count()
