"""Makes the Parquet files of this folder with pyarrow 26.0.1, and the lines that Lorry must read from them. Run by hand:

    python make_tables.py

Building and testing need no Python. The lines are made of the values that went into the files, not by reading these.
"""
import datetime
import decimal
import json
import math
import pathlib
import uuid

import pyarrow
import pyarrow.parquet

FOLDER = pathlib.Path(__file__).parent
ROWS = range(6)
DAY = datetime.date(2026, 1, 30)
NOON = datetime.datetime(1969, 12, 31, 12, 0, 0, 500_000)
CODECS = [("none", 2), ("snappy", 1), ("gzip", 1), ("gzip", 2), ("zstd", 2), ("lz4", 1)]  # and the version of the pages


def pick(row, *values):
    return values[row % len(values)]


def columns():
    """Name, type, the value of a row, and that value in JSON."""
    same = lambda value: value
    iso = lambda value: value and value.isoformat()
    lists = lambda row: pick(row, [1, None, 3], [], None, [4])
    nested = lambda row: pick(row, [["a"], [], ["b", "c"]], [], [[]], [["ä", "\"\n"]])
    struct = lambda row: pick(row, {"a": row, "b": {"c": "x"}}, {"a": None, "b": None}, None)
    structs = lambda row: [{"x": index, "y": pick(index, None, "q")} for index in range(row % 3)]
    number = lambda value: "NaN" if math.isnan(value) else pick(value < 0, "Infinity", "-Infinity") if math.isinf(value) else value
    number_of = lambda row: pick(row, 0.1, -1e300, math.nan, math.inf, -math.inf, 5e-324)
    half = lambda row: pick(row, 0.5, -2.0, 1024.0)
    instant = datetime.timezone.utc
    return [
        ("id", pyarrow.int64(), lambda row: row - 2, same),
        ("text", pyarrow.string(), lambda row: pick(row, "w5 w6", "ä\"\\\n\t", "", None, "w7"), same),
        ("label", pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), lambda row: pick(row, "x", "y", None), same),
        ("u64", pyarrow.uint64(), lambda row: 2**64 - 1 - row, same),
        ("i8", pyarrow.int8(), lambda row: -128 + row, same),
        ("bool", pyarrow.bool_(), lambda row: pick(row, True, False, None), same),
        ("double", pyarrow.float64(), number_of, number),
        ("float", pyarrow.float32(), half, same),
        ("half", pyarrow.float16(), half, same),
        ("date", pyarrow.date32(), lambda row: DAY + datetime.timedelta(days=row), iso),
        ("time", pyarrow.time64("us"), lambda row: pick(row, datetime.time(12, 30, 1), datetime.time(0, 0, 0, 250_000)),
         lambda value: value.strftime("%H:%M:%S") + (".250" if value.microsecond else "")),
        ("local", pyarrow.timestamp("us"), lambda row: NOON + datetime.timedelta(days=row),
         lambda value: value.strftime("%Y-%m-%dT%H:%M:%S.500")),
        ("nanos", pyarrow.timestamp("ns"), lambda row: 10**18 + row,
         lambda value: f"2001-09-09T01:46:40{'.%09d' % (value - 10**18) if value > 10**18 else ''}"),
        ("utc", pyarrow.timestamp("ms", "Europe/Berlin"), lambda row: NOON.replace(microsecond=0, tzinfo=instant),
         lambda value: value.strftime("%Y-%m-%dT%H:%M:%SZ")),
        ("money", pyarrow.decimal128(20, 2), lambda row: decimal.Decimal(row * 7 - 8) / 100, lambda value: f"{value:.2f}"),
        ("list", pyarrow.list_(pyarrow.int32()), lists, same),
        ("nested", pyarrow.list_(pyarrow.list_(pyarrow.string())), nested, same),
        ("struct", pyarrow.struct([("a", pyarrow.int64()), ("b", pyarrow.struct([("c", pyarrow.string())]))]), struct, same),
        ("structs", pyarrow.list_(pyarrow.struct([("x", pyarrow.int64()), ("y", pyarrow.string())])), structs, same),
        ("map", pyarrow.map_(pyarrow.string(), pyarrow.int64()), lambda row: [(f"k{index}", index) for index in range(row % 3)], dict),
        ("bytes", pyarrow.binary(), lambda row: f"b{row}".encode(), bytes.decode),
        ("uuid", pyarrow.uuid(), lambda row: uuid.UUID(int=row + 2**100).bytes, lambda value: str(uuid.UUID(bytes=value))),
        ("none", pyarrow.null(), lambda row: None, same),
    ]


def write(name, table, **options):
    options = {"write_statistics": False, "compression": "zstd", **options}
    pyarrow.parquet.write_table(table, FOLDER / name, **options)


def main():
    table = pyarrow.table({name: pyarrow.array([value(row) for row in ROWS], kind) for name, kind, value, _ in columns()})
    write("types.parquet", table, row_group_size=4, store_schema=False)
    lines = [{name: json_of(value(row)) for name, _, value, json_of in columns()} for row in ROWS]
    (FOLDER / "types.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

    plain = pyarrow.table({
        "id": list(range(40)),
        "text": [None if row % 7 == 3 else f"w{row % 60 + 5} w9" for row in range(40)],
        "words": [[f"w{word}" for word in range(row % 4)] for row in range(40)],
    })
    # Types that only Arrow's note has.
    noted = pyarrow.table({
        "text": ["w5", "w6"],
        "lasted": pyarrow.array([90, None], pyarrow.duration("s")),
        "kind": pyarrow.array(["a", "b"]).dictionary_encode(),
        "at": pyarrow.array([0, 1], pyarrow.timestamp("us", "Europe/Berlin")),
    })
    write("noted.parquet", noted)

    for codec, version in CODECS:
        write(f"{codec}-{version}.parquet", plain, compression=codec, data_page_version=f"{version}.0", row_group_size=25,
              use_dictionary=version == 1, store_schema=False)
    write("delta.parquet", plain, use_dictionary=False, store_schema=False,
          column_encoding={"id": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "words.list.element": "DELTA_LENGTH_BYTE_ARRAY"})
    write("bytes.parquet", pyarrow.table({"text": ["w5", "w6"], "image": [b"w5", b"\xff\xd8"]}), store_schema=False)


if __name__ == "__main__":
    main()
