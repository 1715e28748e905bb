"""Makes Parquet files that claim more than they have: hostile/NAME.parquet, each of some hundred bytes. Run by hand:

    python make_hostile.py

Each has a column `text`, and one a column `id` before it. The metadata is written here, because no library writes it wrong.
"""
import gzip
import pathlib
import struct

FOLDER = pathlib.Path(__file__).parent / "hostile"
HUGE = 2**31 - 1
PLAIN, DELTA_LENGTHS, DELTA_BYTES, DICTIONARY = 0, 6, 7, 8
NONE, SNAPPY, GZIP = 0, 1, 2
REQUIRED, REPEATED = 0, 2
TEXT = struct.pack("<I", 5) + b"hello"


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


class Long(int):
    """A 64-bit integer."""


def kind_of(value):
    return {Long: 6, int: 5, bytes: 8, list: 9, dict: 12}[type(value)]


def thrift(value):
    """In the compact protocol; a dict is a struct, by the numbers of its fields."""
    if isinstance(value, int):
        return varint(value * 2)
    if isinstance(value, bytes):
        return varint(len(value)) + value
    if isinstance(value, list):
        return bytes([0xF0 | kind_of(value[0])]) + varint(len(value)) + b"".join(map(thrift, value))
    out, before = b"", 0
    for number, field in value.items():
        out += bytes([(number - before) << 4 | kind_of(field)]) + thrift(field)
        before = number
    return out + b"\0"


def header(size, packed, values, encoding):
    return thrift({1: 0, 2: size, 3: packed, 5: {1: values, 2: encoding, 3: 3, 4: 3}})


def write(
    name, page=TEXT, size=None, codec=NONE, encoding=PLAIN, values=1, dictionary=None, repetition=REQUIRED, schema=None, rows=1, has_id=False
):
    leaf = {1: 6, 3: repetition, 4: b"text", 6: 0}
    schema = schema or [{4: b"schema", 5: 1}, leaf]
    before, columns = b"", []
    if has_id:
        before = header(len(TEXT), len(TEXT), 1, PLAIN) + TEXT
        length = Long(len(before))
        columns = [{2: Long(4), 3: {1: 6, 2: [PLAIN], 3: [b"id"], 4: NONE, 5: Long(1), 6: length, 7: length, 9: Long(4)}}]
        schema = [{4: b"schema", 5: 2}, {1: 6, 3: REQUIRED, 4: b"id", 6: 0}, leaf]
    start, pages = 4 + len(before), b""
    if dictionary:
        data, count = dictionary
        pages += thrift({1: 2, 2: len(data), 3: len(data), 7: {1: count, 2: PLAIN}}) + data
    begin = start + len(pages)
    pages += header(len(page) if size is None else size, len(page), values, encoding) + page
    column = {1: 6, 2: [encoding], 3: [b"text"], 4: codec, 5: Long(values), 6: Long(len(pages)), 7: Long(len(pages)), 9: Long(begin)}
    if dictionary:
        column[11] = Long(start)
    columns.append({2: Long(start), 3: column})
    group = {1: columns, 2: Long(len(before + pages)), 3: Long(rows)}
    footer = thrift({1: 1, 2: schema, 3: Long(rows), 4: [group]})
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.parquet").write_bytes(b"PAR1" + before + pages + footer + struct.pack("<I", len(footer)) + b"PAR1")


def main():
    levels = varint(HUGE // 4 * 2) + b"\0"  # a run
    levels = struct.pack("<I", len(levels)) + levels
    lengths = varint(128) + varint(4) + varint(HUGE) + varint(0) + bytes(100)
    no_lengths = varint(128) + varint(4) + varint(0) + varint(0)
    leaf = {1: 6, 3: REQUIRED, 4: b"text", 6: 0}
    write("good")
    write("good_gzip", gzip.compress(TEXT, mtime=0), len(TEXT), GZIP)
    write("bomb", gzip.compress(bytes(2**20), mtime=0), len(TEXT), GZIP)
    write("size", b"\xFF\xFF\xFF\xFF\x07" + TEXT, HUGE, SNAPPY)
    write("size_beside_id", b"\xFF\xFF\xFF\xFF\x07" + TEXT, HUGE, SNAPPY, has_id=True)
    write("dictionary", b"\1\2\0", encoding=DICTIONARY, dictionary=(TEXT, HUGE))
    write("values", values=HUGE, rows=HUGE)
    write("list", levels + levels, values=HUGE // 4, repetition=REPEATED)
    write("lengths", lengths, encoding=DELTA_LENGTHS)
    write("suffixes", no_lengths + lengths, encoding=DELTA_BYTES)
    write("rows", rows=2**60)
    write("children", schema=[{4: b"schema", 5: HUGE}, leaf])
    write("deep", schema=[{4: b"schema", 5: 1}] + [{3: REQUIRED, 4: b"g", 5: 1}] * 70 + [leaf])


if __name__ == "__main__":
    main()
