"""Field lists as Spark writes them: types, and errors that name the place."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, DecimalType, LongType, StringType, StructField, StructType

from serai.errors import Misuse
from serai.spark.ddl import read_fields


def test_types_are_those_spark_gives_them() -> None:
    inner = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    expected = StructType(
        [StructField("id", LongType()), StructField("price", DecimalType(10, 2)), StructField("tags", ArrayType(inner))]
    )
    found = read_fields(
        "id bigint, `price`: decimal(10, 2), tags array<struct<key: string, value: binary>>", name="fields"
    )
    assert pa.schema(found) == to_arrow_schema(expected, timezone="UTC")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id bigint,, b int", "character 10: expected a word, found ', b int'"),
        ("id money", "character 2: expected a type"),
        ("id decimal(39,1)", r"expected decimal\(1..38, 0..precision\), not decimal\(39,1\)"),
        ("id array<int", "expected >, found 'the end'"),
        ("id int b int", "character 6: expected a comma or the end, found 'b int'"),
        ("id int, id int", "names 'id' twice"),
        ("", "expected a word"),
    ],
)
def test_wrong_lists_name_the_place(text: str, words: str) -> None:
    with pytest.raises(Misuse, match=words):
        read_fields(text, name="fields")
