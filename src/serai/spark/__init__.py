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
